"""The scikit-learn estimator, of a small network and a head. It needs scikit-learn, so nothing else imports it."""
