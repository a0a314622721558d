"""What a user may have on his path."""

WHOSE = "the user"
print("the user's own sitecustomize")
