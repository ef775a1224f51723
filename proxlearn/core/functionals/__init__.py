"""The functionals to be minimised: functions of a weighted cloud, with a first variation and a gradient."""
