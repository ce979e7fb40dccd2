"""Uses of the code that try to make it answer wrongly, lose rows or take more than it may."""
