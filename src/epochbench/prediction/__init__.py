"""The GPU that is not here, predicted from the model itself: recorder, cost model, cards, calibration."""
