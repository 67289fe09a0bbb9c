package cni

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testNetwork(t *testing.T, subnets ...netip.Prefix) Network {
	t.Helper()
	n := Network{Bridge: "mp-test", Subnets: subnets, Table: "monopod-test", Dir: t.TempDir()}
	if err := n.writeFiles("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConflistIsReadBack(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, netip.MustParsePrefix("10.88.7.0/24"))
	data, err := os.ReadFile(filepath.Join(n.ConfDir(), confName))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var conf pluginConf
	err = errors.Join(json.Unmarshal(list.Plugins[0], &conf), conf.check())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, conf.Network, cmp.AllowUnexported(Network{}),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if (pluginConf{Type: pluginName}).check() == nil {
		t.Error("a configuration without bridge was accepted")
	}
}
