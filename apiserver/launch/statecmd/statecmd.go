// Package statecmd has the commands that work on the files of a server: its state, snapshots and certificates.
package statecmd

import (
	"time"

	"github.com/spf13/cobra"

	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/launch"
	"monopod/store/bolt/snapshotcmd"
	"monopod/store/storecmd"
)

// AddTo adds the commands to root; dataDir is the default of --data-dir, and Events expire after eventTTL in a state in etcd.
func AddTo(root *cobra.Command, dataDir string, eventTTL time.Duration) {
	root.AddCommand(
		certscmd.New(dataDir),
		snapshotcmd.New(snapshotcmd.Config{DataDir: dataDir, Store: launch.Stores}),
		storecmd.New(func() storecmd.Config { return launch.SharedStores(eventTTL) }),
	)
}
