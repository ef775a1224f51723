"""The functionals to be minimised: functions of the measure of the cloud, with a first variation and a gradient."""
