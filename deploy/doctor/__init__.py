"""`aegis doctor`: what a hospital's IT or a coordinator looks at before calling anybody, in one command.

A check looks and changes nothing that lasts. What it says holds counts and places, never the content of an image, the
name of a file or folder of images, or the text of an error that may hold one.

Read next: `checks`, what a check is; `catalogue`, all of them in order; `command`.
"""
