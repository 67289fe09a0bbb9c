package addon

import (
	"bytes"
	_ "embed" // the manifests
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// gatewayAPI is what testdata/gatewayapi/build.sh makes of the module sigs.k8s.io/gateway-api.
//
//go:embed gateway-api.yaml.zst
var gatewayAPI []byte

// gatewayClass is the class of Monopod's own controller of Gateways.
//
//go:embed gateway-class.yaml
var gatewayClass []byte

//go:embed metrics.yaml
var metrics []byte

// metricsUse says how to use the addon metrics. ADDRESS stands for the server's address, HOST for its host and port.
//
//go:embed metrics.txt
var metricsUse string

// builtin is an addon in the program.
type builtin struct {
	name, version, description string
	manifests                  func() ([]byte, error)
	use                        string // printed after it was enabled
}

// builtIn returns the addons in the program, in the order of their names.
func builtIn() []builtin {
	return []builtin{
		{
			name: "gateway-api", version: "v1.6.3",
			description: "kinds of the Gateway API (standard channel), and the GatewayClass monopod",
			manifests: func() ([]byte, error) {
				published, err := unpack(gatewayAPI)
				return bytes.Join([][]byte{published, gatewayClass}, []byte("\n---\n")), err
			},
			use: "Gateways of the class monopod can be created now.\n",
		},
		{
			name: "metrics", version: "v1",
			description: "read-only account for Prometheus, and for the graphs of the web page",
			manifests:   func() ([]byte, error) { return metrics, nil },
			use:         metricsUse,
		},
	}
}

func unpack(data []byte) ([]byte, error) {
	from, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return from.DecodeAll(data, nil)
}

// Names returns the names of the addons in the program.
func Names() (names []string) {
	for _, b := range builtIn() {
		names = append(names, b.name)
	}
	return names
}

// BuiltIn returns an addon in the program.
func BuiltIn(name string) (Set, error) {
	all := builtIn()
	at := slices.IndexFunc(all, func(b builtin) bool { return b.name == name })
	if at < 0 {
		return Set{}, fmt.Errorf("no addon %q is built in: name its manifests with --file, or choose %s",
			name, strings.Join(Names(), " or "))
	}
	data, err := all[at].manifests()
	if err != nil {
		return Set{}, fmt.Errorf("the addon %s in the program: %w", name, err)
	}
	objects, err := parse(name, data)
	return Set{Name: name, Version: all[at].version, objects: objects}, err
}

// Use returns how to use an addon in the program on the server at an address, to be printed after it was enabled.
func Use(name, address string) string {
	for _, b := range builtIn() {
		if b.name == name {
			_, host, _ := strings.Cut(address, "://")
			return strings.NewReplacer("ADDRESS", address, "HOST", host).Replace(b.use)
		}
	}
	return ""
}
