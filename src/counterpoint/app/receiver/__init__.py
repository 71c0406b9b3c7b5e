"""The OTLP/HTTP receiver of `counterpoint serve`: what it is told is on disk before it answers, and becomes traces in a store."""
