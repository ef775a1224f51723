"""Classify handwritten digits with the cross-entropy loss; y holds the labels 0 to 9."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import proxlearn as pl

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X.astype("float32") / 16, y, random_state=0)
risk = pl.Risk(X, y, neuron=pl.neurons.Tanh(outputs=10), loss=pl.losses.cross_entropy)
hyper = pl.Hyper(beta=1e6, h=2.0, epsilon=1.0, weights="uniform")
for cloud, info in pl.iterate(risk, pl.init(risk, N=200, scale=2.0), hyper, steps=300):
    pass
predicted = risk.predict(cloud, X_test).argmax(dim=1)
print(f"test accuracy: {float((predicted.numpy() == y_test).mean()):.3f}")
