"""The functionals to be minimised; each is a function of the measure of the cloud, with a first variation and a
gradient.
"""
