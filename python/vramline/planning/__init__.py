"""What a Keras model needs, and training it within a limit."""
