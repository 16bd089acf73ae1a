// Command kube-apiserver is the Kubernetes component of that name, built from its public
// Go module so that the cluster harness needs no downloaded binaries.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as the original
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go metrics, as the original
	_ "k8s.io/component-base/metrics/prometheus/version"  // build version metric, as the original
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
