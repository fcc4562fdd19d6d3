"""The package, the site and the supply chain, checked before a release."""
