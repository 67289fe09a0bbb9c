package dns

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/guard"
)

const (
	// part names the server and the forwarder in metrics and health.
	part = "dns"
	// idleTimeout is how long a TCP connection without queries is kept.
	idleTimeout = 8 * time.Second
	// maxConns is the maximum number of open TCP connections to an address.
	maxConns = 256
	// forever is a read timeout that never expires.
	forever = 10 * 365 * 24 * time.Hour
	// forwardTimeout limits a forwarded query; clients repeat it after 5 s.
	forwardTimeout = 4 * time.Second
)

// Server answers queries over UDP and TCP.
type Server struct {
	zone    *Zone
	forward *Forwarder
	guard   *guard.Guard // of the handler: the library does not recover panics
	log     *zap.Logger
}

// NewServer returns a server of the zone; queries for other names go to forward.
func NewServer(zone *Zone, forward *Forwarder, g *guard.Guard, log *zap.Logger) *Server {
	return &Server{zone: zone, forward: forward, guard: g, log: log}
}

// Serve answers at the addresses until ctx ends. It calls ready with the addresses and ports at which it listens: any
// free port if another program uses the given one.
func (s *Server) Serve(ctx context.Context, at []netip.Addr, port uint16, ready func([]netip.AddrPort)) error {
	var sockets []io.Closer
	var servers []*dns.Server
	var listens []netip.AddrPort
	for _, ip := range at {
		udp, tcp, err := listen(netip.AddrPortFrom(ip, port))
		if err != nil {
			return errors.Join(err, closeAll(sockets))
		}
		sockets = append(sockets, udp, tcp)
		listens = append(listens, netip.MustParseAddrPort(udp.LocalAddr().String()))
		servers = append(servers,
			&dns.Server{PacketConn: udp, Handler: s, UDPSize: dns.DefaultMsgSize, ReadTimeout: forever},
			&dns.Server{Listener: netutil.LimitListener(tcp, maxConns), Handler: s,
				IdleTimeout: func() time.Duration { return idleTimeout }})
	}
	group, ctx := guard.With(ctx)
	for _, srv := range servers {
		group.Do(srv.ActivateAndServe)
	}
	group.Do(func() error {
		<-ctx.Done()
		_ = closeAll(sockets) // which ends the servers
		return nil
	})
	s.forward.Probe()
	ready(listens)
	err := group.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func closeAll(sockets []io.Closer) error {
	var errs []error
	for _, s := range sockets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// portTries is how many free UDP ports are tried until one is free for TCP, too.
const portTries = 16

// listen opens both sockets at the same port: any free one if the given one is taken.
func listen(at netip.AddrPort) (udp net.PacketConn, tcp net.Listener, err error) {
	if at.Port() != 0 {
		if udp, tcp, err = listenAt(at); err == nil {
			return udp, tcp, nil
		}
		at = netip.AddrPortFrom(at.Addr(), 0)
	}
	for range portTries {
		if udp, tcp, err = listenAt(at); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return udp, tcp, err
}

func listenAt(at netip.AddrPort) (net.PacketConn, net.Listener, error) {
	udp, err := net.ListenPacket("udp", at.String())
	if err != nil {
		return nil, nil, err
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		return nil, nil, errors.Join(err, udp.Close())
	}
	return udp, tcp, nil
}

// ServeDNS implements dns.Handler.
func (s *Server) ServeDNS(w dns.ResponseWriter, ask *dns.Msg) {
	if !s.guard.Run(part, func() { s.answer(w, ask) }) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(ask, dns.RcodeServerFailure)) // an error means that the client is gone
	}
}

func (s *Server) answer(w dns.ResponseWriter, ask *dns.Msg) {
	reply := s.reply(ask)
	size := dns.MinMsgSize
	if opt := ask.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
		reply.SetEdns0(maxPayload, opt.Do())
	}
	if _, udp := w.LocalAddr().(*net.UDPAddr); udp {
		reply.Truncate(min(size, dns.DefaultMsgSize))
	} else {
		reply.Compress = true
	}
	_ = w.WriteMsg(reply) // after an error the client repeats the query
}

func (s *Server) reply(ask *dns.Msg) *dns.Msg {
	reply := new(dns.Msg)
	if len(ask.Question) != 1 || ask.Opcode != dns.OpcodeQuery {
		return reply.SetRcode(ask, dns.RcodeNotImplemented)
	}
	q := ask.Question[0]
	reply.SetReply(ask)
	reply.RecursionAvailable = true
	if q.Qclass != dns.ClassINET {
		reply.Rcode = dns.RcodeRefused
		return reply
	}
	if a, ok := s.zone.Answer(q); ok {
		s.answerFromZone(reply, q, a)
		return reply
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	opt := ask.IsEdns0()
	m, err := s.forward.Ask(ctx, q, opt != nil && opt.Do())
	if err != nil {
		s.log.Debug("failed to forward a query", zap.String("name", q.Name), zap.Error(err))
		reply.Rcode = dns.RcodeServerFailure
		return reply
	}
	reply.Rcode, reply.Answer, reply.Ns, reply.AuthenticatedData = m.Rcode, m.Answer, m.Ns, m.AuthenticatedData
	for _, r := range m.Extra {
		if r.Header().Rrtype != dns.TypeOPT {
			reply.Extra = append(reply.Extra, r)
		}
	}
	return reply
}

// answerFromZone completes the reply with an answer of the zone.
func (s *Server) answerFromZone(reply *dns.Msg, q dns.Question, a Answer) {
	reply.Authoritative, reply.Rcode, reply.Answer, reply.Extra = true, a.Code, a.Records, a.More
	if a.Alias != "" && q.Qtype != dns.TypeCNAME {
		s.addTarget(reply, dns.Question{Name: a.Alias, Qtype: q.Qtype, Qclass: q.Qclass})
		return
	}
	if len(a.Records) == 0 {
		reply.Ns = []dns.RR{s.zone.SOA()}
	}
}

// addTarget adds the records of the target of a CNAME. If that fails, clients query them themselves.
func (s *Server) addTarget(reply *dns.Msg, q dns.Question) {
	if a, ok := s.zone.Answer(q); ok {
		if a.Alias == "" { // at most one alias within the zone
			reply.Answer = append(reply.Answer, a.Records...)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	if m, err := s.forward.Ask(ctx, q, false); err == nil {
		reply.Answer = append(reply.Answer, m.Answer...)
	}
}
