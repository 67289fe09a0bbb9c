package fake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/fake/archive"
	"monopod/agent/runtime/fake/images"
)

func TestMergeEnv(t *testing.T) {
	t.Parallel()
	got := mergeEnv([]string{"PATH=/", "A=1"}, []string{"HOSTNAME=x"}, []string{"A=2", "B=", "A=3"})
	if diff := cmp.Diff([]string{"PATH=/", "A=3", "HOSTNAME=x", "B="}, got); diff != "" {
		t.Error(diff)
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	ours := &images.Image{Image: &archive.Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}, Cmd: []string{"serve"}}}}
	pretended := &images.Image{Pretended: true, Image: &archive.Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}}}}
	for _, tc := range []struct {
		name          string
		image         *images.Image
		command, args string
		want          string // empty: refused
	}{
		{"image's own", ours, "", "", "/web serve"},
		{"arguments replace the image's", ours, "", "echo hi", "/web echo hi"},
		{"command replaces all", ours, "/web env", "", "/web env"},
		{"command and arguments", ours, "/web", "exit 3", "/web exit 3"},
		{"unknown program", ours, "nginx", "-g x", ""},
		{"misuse is the program's affair", ours, "", "exit", "/web exit"},
		{"pretended", pretended, "", "", "/web"},
		{"pretended, flags of ours", pretended, "", "-stop-after 3s", "/web -stop-after 3s"},
		{"pretended, command of ours", pretended, "sleep 5", "", "sleep 5"},
		{"pretended, kubectl run -- sleep 5", pretended, "", "sleep 5", "/web sleep 5"},
		{"pretended, unknown command", pretended, "sh -c", "true", "/web"},
		{"pretended, unknown arguments", pretended, "", "--port 80", "/web"},
	} {
		c := &container{image: tc.image, config: &cri.ContainerConfig{Command: strings.Fields(tc.command), Args: strings.Fields(tc.args)}}
		got, err := c.args()
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}
