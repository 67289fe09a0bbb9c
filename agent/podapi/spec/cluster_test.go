package spec_test

import (
	"testing"

	"github.com/spf13/pflag"

	"monopod/agent/podapi/spec"
)

func TestClusterFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[[2]string]string{
		{"--cluster-dns=10.0.0.10,fd00::a", "--cluster-domain=cluster.local"}: "",
		{"--cluster-dns=dns.example",
			""}: `--cluster-dns: "dns.example" is not an IP address`,
		{"--cluster-domain=Cluster_Local", ""}: `--cluster-domain: "Cluster_Local": `,
	} {
		var c spec.Cluster
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Flags(f)
		if err := f.Parse(args[:]); err != nil {
			t.Fatal(err)
		}
		err := c.Check()
		if got := ""; err != nil {
			if got = err.Error(); want == "" || len(got) < len(want) || got[:len(want)] != want {
				t.Errorf("%v: %v", args, err)
			}
		} else if want != "" {
			t.Errorf("%v: no error", args)
		}
	}
}
