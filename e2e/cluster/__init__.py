"""The test cluster: real Kubernetes parts, and nodes made of namespaces."""

from .api import Api, ApiError
from .cluster import Cluster, down, up
from .messages import Problem, say, step
from .network import Network
from .node import Node
from .processes import Component, Process

__all__ = [
    "Api",
    "ApiError",
    "Cluster",
    "Component",
    "Network",
    "Node",
    "Problem",
    "Process",
    "down",
    "say",
    "step",
    "up",
]
