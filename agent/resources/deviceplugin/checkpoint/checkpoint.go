// Package checkpoint reads and writes kubelet's checkpoint of allocated devices,
// kubelet_internal_checkpoint, with the same bytes as kubelet. The checksum covers
// spew's output of Data, including type names, so the types have upstream's names.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"k8s.io/utils/dump"

	"monopod/agent/host/checkpoint"
)

// FileName is the name of the file in the folder of the plugins' sockets.
const FileName = "kubelet_internal_checkpoint"

// ErrDamaged means that the content of the file does not match its checksum.
var ErrDamaged = errors.New("checkpoint of devices is damaged")

// NoNUMANode is the key in DevicesPerNUMA of devices without a NUMA node.
const NoNUMANode = -1

// DevicesPerNUMA contains device IDs by NUMA node.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry contains a container's devices of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte // the plugin's ContainerAllocateResponse, encoded
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

// Data is the content of the file.
type Data struct {
	Entries    []PodDevicesEntry
	Registered map[string][]string // healthy devices by resource
}

type file struct {
	Data     checkpointData
	Checksum uint64
}

func checksum(d checkpointData) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(d)))
	return uint64(h.Sum32())
}

// Encode returns the content of the file.
func Encode(d Data) ([]byte, error) {
	data := checkpointData{PodDeviceEntries: d.Entries, RegisteredDevices: d.Registered}
	return json.Marshal(file{Data: data, Checksum: checksum(data)})
}

// Decode parses the content of the file. Its errors wrap ErrDamaged.
func Decode(b []byte) (Data, error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return Data{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if want := checksum(f.Data); f.Checksum != want {
		return Data{}, fmt.Errorf("%w: its checksum is %d, not %d", ErrDamaged, f.Checksum, want)
	}
	return Data{Entries: f.Data.PodDeviceEntries, Registered: f.Data.RegisteredDevices}, nil
}

// Read reads the file in dir.
func Read(dir string) (Data, error) {
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		return Data{}, err
	}
	return Decode(b)
}

// StartOver sets the file in dir aside; see checkpoint.File.
func StartOver(dir string, why error) (lost, err error) {
	return checkpoint.File(filepath.Join(dir, FileName)).StartOver(why,
		"allocations of running containers are restored from the runtime")
}

// Write atomically replaces the file in dir: after a power failure it has the old or the new content.
func Write(dir string, content []byte) error {
	return checkpoint.File(filepath.Join(dir, FileName)).Write(content)
}
