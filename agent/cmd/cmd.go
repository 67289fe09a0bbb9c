// Package cmd has monopod's commands beside serve, one in each file: those that talk to a running server or to a
// throw-away one, those that work on the files of a server, and those that look after the machine of a node.
package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/setup"
	"monopod/store/state"
)

// AddTo adds the commands to root. dataDir is the default of --data-dir; Events in etcd expire after eventTTL.
func AddTo(root *cobra.Command, dataDir string, versions commandline.Versions, eventTTL time.Duration) {
	root.AddCommand(
		certsCommand(dataDir),
		checkCommand(dataDir, versions.Built()),
		dashboardCommand(dataDir),
		drainCommand(dataDir),
		imagesCommand(dataDir),
		inspectCommand(dataDir, versions),
		logsCommand(dataDir),
		resetCommand(dataDir),
		runCommand(),
		snapshotCommand(snapshotConfig{DataDir: dataDir, Store: setup.Stores}),
		statusCommand(dataDir),
		storeCommand(func() state.Config { return setup.SharedStores(eventTTL) }),
		whyCommand(dataDir),
	)
	root.AddCommand(installCommands(dataDir)...)
	addKubectl(root, dataDir)
}
