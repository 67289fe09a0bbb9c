package fake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMergeEnv(t *testing.T) {
	t.Parallel()
	got := mergeEnv([]string{"PATH=/", "A=1"}, []string{"HOSTNAME=x"}, []string{"A=2", "B=", "A=3"})
	if diff := cmp.Diff([]string{"PATH=/", "A=3", "HOSTNAME=x", "B="}, got); diff != "" {
		t.Error(diff)
	}
}

// words splits at spaces; @ is a space within a word.
func words(text string) []string {
	out := strings.Fields(text)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "@", " ")
	}
	return out
}

func TestArgs(t *testing.T) {
	t.Parallel()
	ours := &storedImage{Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}, Cmd: []string{"serve"}}}}
	placeholder := &storedImage{placeholder: true, Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}}}}
	for _, tc := range []struct {
		name          string
		image         *storedImage
		command, args string
		want          string // empty: args fails
	}{
		{"default", ours, "", "", "/web serve"},
		{"arguments", ours, "", "echo hi", "/web echo hi"},
		{"command", ours, "/web env", "", "/web env"},
		{"command and arguments", ours, "/web", "exit 3", "/web exit 3"},
		{"unknown program", ours, "nginx", "-g x", ""},
		{"missing argument", ours, "", "exit", "/web exit"},
		{"placeholder", placeholder, "", "", "/web"},
		{"placeholder, flags of the sample program", placeholder, "", "-stop-after 3s", "/web -stop-after 3s"},
		{"placeholder, command of the sample program", placeholder, "sleep 5", "", "sleep 5"},
		{"placeholder, kubectl run -- sleep 5", placeholder, "", "sleep 5", "/web sleep 5"},
		{"placeholder, unknown command", placeholder, "nginx -g", "x", "/web"},
		{"placeholder, true", placeholder, "/bin/true", "", "/bin/true"},
		{"placeholder, script", placeholder, "sh -c", "true", "do true"},
		{"placeholder, script as arguments", placeholder, "", "/bin/sh -c exit@3", "do exit 3"},
		{"placeholder, long script", placeholder, "", "bash -ec sleep@2;@echo@'a@b'@&&@exit@4;echo@never",
			"do sleep 2 then echo a b then exit 4"},
		{"placeholder, ignored failure", placeholder, "", "sh -c false;echo@on", "do echo on"},
		{"placeholder, failure before &&", placeholder, "", "sh -c false@&&@echo@on", "do false then echo on"},
		{"placeholder, script for a real shell", placeholder, "", "sh -c echo@$HOME", "/web"},
		{"placeholder, script with other programs", placeholder, "", "sh -c sleep@1;curl@x", "/web"},
		{"placeholder, unknown arguments", placeholder, "", "--port 80", "/web"},
	} {
		c := &container{image: tc.image, config: &cri.ContainerConfig{Command: words(tc.command), Args: words(tc.args)},
			sandbox: &sandbox{config: &cri.PodSandboxConfig{}}}
		got, err := c.args()
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}

// An annotation of the pod sets the exit code of its containers.
func TestExitCodeOfAPod(t *testing.T) {
	t.Parallel()
	c := &container{
		image:   &storedImage{placeholder: true, Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}}}},
		config:  &cri.ContainerConfig{Command: []string{"./migrate"}},
		sandbox: &sandbox{config: &cri.PodSandboxConfig{Annotations: map[string]string{ExitCode: "7"}}},
	}
	if got, err := c.args(); strings.Join(got, " ") != "exit 7" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
