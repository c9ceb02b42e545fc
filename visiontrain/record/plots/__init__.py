"""Pictures and curves of a run, drawn with OpenCV and NumPy alone."""
