"""What `visiontrain check` looks at before a training: the data, and a trial of the training itself."""
