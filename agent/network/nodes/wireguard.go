package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"monopod/agent/network/cni/ipam"
)

// keepalive is the interval of packets to a peer, so that NATs on the way do not forget it (wg's recommendation).
const keepalive = 25 * time.Second

// lostAfter is the time since the last handshake after which a peer may have another endpoint: WireGuard rejects keys
// that are older than 180 s (its REJECT_AFTER_TIME).
const lostAfter = 180 * time.Second

// StartWireGuard implements Machine.
func (k *Kernel) StartWireGuard() (wgtypes.Key, error) {
	link, err := k.tunnel(&netlink.Wireguard{LinkAttrs: named(k.Network.WireGuardLink())}, overheadWireGuard,
		func(netlink.Link) bool { return true })
	if err != nil {
		return wgtypes.Key{}, err
	}
	private, err := readKey(k.KeyFile)
	if err != nil {
		return wgtypes.Key{}, err
	}
	err = k.configure(func(device *wgtypes.Device) wgtypes.Config {
		var cfg wgtypes.Config
		if device.PrivateKey != private {
			cfg.PrivateKey = &private
		}
		if device.ListenPort != int(k.Port) {
			cfg.ListenPort = new(int(k.Port))
		}
		return cfg
	})
	if err == nil {
		err = k.Network.SetUpTunnel(link)
	}
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("set up WireGuard on port %d: %w", k.Port, err)
	}
	return private.PublicKey(), nil
}

// configure changes the device, if change returns a change of it.
func (k *Kernel) configure(change func(*wgtypes.Device) wgtypes.Config) error {
	c, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer c.Close()
	device, err := c.Device(k.Network.WireGuardLink())
	if err != nil {
		return err
	}
	cfg := change(device)
	if cfg.PrivateKey == nil && cfg.ListenPort == nil && len(cfg.Peers) == 0 {
		return nil
	}
	return c.ConfigureDevice(device.Name, cfg)
}

// setPeers makes the device have exactly these peers.
func (k *Kernel) setPeers(peers []Peer) error {
	err := k.configure(func(device *wgtypes.Device) wgtypes.Config {
		return wgtypes.Config{Peers: peerChanges(device.Peers, peers, k.endpoints, time.Now())}
	})
	if err != nil {
		return fmt.Errorf("set the peers of WireGuard: %w", err)
	}
	k.endpoints = map[string]netip.AddrPort{}
	for _, p := range peers {
		k.endpoints[p.Key.String()] = p.Endpoint
	}
	return nil
}

// peerChanges returns the changes from the peers of a device to the desired ones. WireGuard learns by itself where a
// peer behind a NAT is: the endpoint that a node says is set only if the peer is new, if the node says another one than
// before (written), or if the peer has not answered for a long time at the start.
func peerChanges(have []wgtypes.Peer, want []Peer, written map[string]netip.AddrPort,
	now time.Time) (changes []wgtypes.PeerConfig) {
	for _, old := range have {
		if !slices.ContainsFunc(want, func(p Peer) bool { return p.Key == old.PublicKey }) {
			changes = append(changes, wgtypes.PeerConfig{PublicKey: old.PublicKey, Remove: true})
		}
	}
	for _, p := range want {
		cfg := wgtypes.PeerConfig{PublicKey: p.Key}
		i := slices.IndexFunc(have, func(old wgtypes.Peer) bool { return old.PublicKey == p.Key })
		before, known := written[p.Key.String()]
		setEndpoint := i < 0 || known && before != p.Endpoint ||
			!known && (have[i].Endpoint == nil || now.Sub(have[i].LastHandshakeTime) > lostAfter)
		if setEndpoint && p.Endpoint.IsValid() {
			cfg.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
		if i < 0 || !sameRanges(have[i].AllowedIPs, p.Ranges) {
			cfg.ReplaceAllowedIPs = true
			for _, r := range p.Ranges {
				cfg.AllowedIPs = append(cfg.AllowedIPs, *ipam.IPNet(r))
			}
		}
		if i < 0 || have[i].PersistentKeepaliveInterval != keepalive {
			cfg.PersistentKeepaliveInterval = new(keepalive)
		}
		if cfg.Endpoint != nil || cfg.ReplaceAllowedIPs || cfg.PersistentKeepaliveInterval != nil {
			changes = append(changes, cfg)
		}
	}
	return changes
}

func sameRanges(have []net.IPNet, want []netip.Prefix) bool {
	for i := range have {
		if !slices.Contains(want, ipam.PrefixOf(&have[i])) {
			return false
		}
	}
	return len(have) == len(want)
}

// readKey reads the private key, in the format of wg, or creates it.
func readKey(file string) (wgtypes.Key, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		key, err := wgtypes.ParseKey(strings.TrimSpace(string(data)))
		if err != nil {
			return wgtypes.Key{}, fmt.Errorf("read the private key of WireGuard in %s: %w; delete the file to make a new one",
				file, err)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return wgtypes.Key{}, err
	}
	key, err := wgtypes.GeneratePrivateKey()
	if err == nil {
		err = writeKey(file, key)
	}
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("make a private key for WireGuard: %w", err)
	}
	return key, nil
}

// writeKey writes the key so that a power failure leaves the whole file or none.
func writeKey(file string, key wgtypes.Key) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // with the mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(key.String() + "\n")
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
