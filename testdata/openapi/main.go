// Command openapi writes the OpenAPI definitions of Kubernetes' types, which the API server publishes. Kubernetes'
// generator makes them from the modules in go.mod.
//
// The generator writes Go, so there are two steps: the first writes the folder generated, the second (pack) runs it.
// The command is in a separate module to keep the generator out of the main module.
package main

import (
	"flag"
	"log"
	"os"
	"os/exec"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

// packages contain the types of all served kinds.
var packages = []string{
	"k8s.io/api/admissionregistration/v1",
	"k8s.io/api/apps/v1",
	"k8s.io/api/authentication/v1",
	"k8s.io/api/authorization/v1",
	"k8s.io/api/autoscaling/v1",
	"k8s.io/api/autoscaling/v2",
	"k8s.io/api/batch/v1",
	"k8s.io/api/certificates/v1",
	"k8s.io/api/coordination/v1",
	"k8s.io/api/core/v1",
	"k8s.io/api/discovery/v1",
	"k8s.io/api/events/v1",
	"k8s.io/api/flowcontrol/v1",
	"k8s.io/api/networking/v1",
	"k8s.io/api/node/v1",
	"k8s.io/api/policy/v1",
	"k8s.io/api/rbac/v1",
	"k8s.io/api/resource/v1",
	"k8s.io/api/scheduling/v1",
	"k8s.io/api/scheduling/v1alpha3", // the type of Jobs refers to it
	"k8s.io/api/storage/v1",
	"k8s.io/api/storagemigration/v1",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"k8s.io/apimachinery/pkg/api/resource",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/util/intstr",
	"k8s.io/apimachinery/pkg/version",
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
}

func main() {
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	if err := generate(); err != nil {
		log.Fatal(err)
	}
	pack := exec.Command("go", "run", "-tags", "generated", "./pack", "-o", *out)
	pack.Stdout, pack.Stderr = os.Stdout, os.Stderr
	if err := pack.Run(); err != nil {
		log.Fatal(err)
	}
}

// generate writes the definitions as Go code into the folder generated.
func generate() error {
	a := args.New()
	a.OutputDir, a.OutputPkg, a.OutputFile = "generated", "monopod/testdata/openapi/generated", "openapi.go"
	a.ReportFilename = os.DevNull
	header, err := gengo.GoBoilerplate("", gengo.StdBuildTag, gengo.StdGeneratedBy)
	if err != nil {
		return err
	}
	targets := func(c *generator.Context) []generator.Target { return generators.GetOpenAPITargets(c, a, header) }
	return gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages)
}
