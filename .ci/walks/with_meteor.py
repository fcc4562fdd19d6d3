"""The archives of METEOR and of the tokenizer of the COCO evaluation."""

from sightline.evaluate import java

assert java.missing() in {None, "java, which is not on the path"}, java.missing()
print("the archives for --meteor and --ptb;", java.missing() or "java")
