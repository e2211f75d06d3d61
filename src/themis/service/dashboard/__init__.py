"""The dashboard model of the live service, with what a viewer may not see taken out."""
