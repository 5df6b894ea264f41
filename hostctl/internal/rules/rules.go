// Package rules reads sets and counters of a table of nftables and watches for its removal:
// linux/netfilter/nf_tables.h. Reading starts no process.
package rules

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"coppice/hostctl/internal/netfilter"
)

// Attributes that golang.org/x/sys does not name as it names the others: NFTA_LIST_ELEM, NFTA_DATA_VALUE.
const (
	listElement = 1
	dataValue   = 1
	// NFTA_SET_ELEM_EXPRESSIONS
	elementExpressions = 11
	// NFT_OBJECT_COUNTER
	objectCounter = 1
	// 1 << (NFNLGRP_NFTABLES - 1)
	rulesGroup = 1 << 6
)

// Element is an element of a set.
type Element struct {
	Key []byte
	// Packets is 0 for an element without a counter.
	Packets uint64
	// Remaining is the time until the element expires; math.MaxInt64 for one without a timeout.
	Remaining time.Duration
}

// Reader reads the rules of this network namespace. It is not safe for concurrent use.
type Reader struct {
	connection *netlink.Conn
}

// Open opens a reader.
func Open() (*Reader, error) {
	connection, err := netfilter.Dial(0)
	if err != nil {
		return nil, err
	}
	return &Reader{connection}, nil
}

// Close releases the connection.
func (r *Reader) Close() error {
	return r.connection.Close()
}

// ReadSet returns the elements of a set. It returns ok=false when there is no such set, or no such table.
func (r *Reader) ReadSet(table, set string) (elements []Element, ok bool, err error) {
	answers, ok, err := netfilter.Execute(r.connection, netfilter.Request{
		Subsystem: unix.NFNL_SUBSYS_NFTABLES,
		Message:   unix.NFT_MSG_GETSETELEM,
		Flags:     netlink.Dump,
		Family:    unix.NFPROTO_INET,
		Encode: func(encoder *netlink.AttributeEncoder) error {
			encoder.String(unix.NFTA_SET_ELEM_LIST_TABLE, table)
			encoder.String(unix.NFTA_SET_ELEM_LIST_SET, set)
			return nil
		},
	})
	if err != nil || !ok {
		return nil, false, describe("reading a set", err)
	}
	elements = []Element{}
	for _, answer := range answers {
		found, err := parseElements(answer)
		if err != nil {
			return nil, false, describe("reading a set", err)
		}
		elements = append(elements, found...)
	}
	return elements, true, nil
}

// ReadCounter returns the packets that a named counter has seen. It returns ok=false when there is no such counter, or no
// such table.
func (r *Reader) ReadCounter(table, name string) (packets uint64, ok bool, err error) {
	answers, ok, err := netfilter.Execute(r.connection, netfilter.Request{
		Subsystem: unix.NFNL_SUBSYS_NFTABLES,
		Message:   unix.NFT_MSG_GETOBJ,
		Family:    unix.NFPROTO_INET,
		Encode: func(encoder *netlink.AttributeEncoder) error {
			encoder.String(unix.NFTA_OBJ_TABLE, table)
			encoder.String(unix.NFTA_OBJ_NAME, name)
			encoder.Uint32(unix.NFTA_OBJ_TYPE, objectCounter)
			return nil
		},
	})
	if err != nil || !ok || len(answers) == 0 {
		return 0, false, describe("reading a counter", err)
	}
	decoder, err := netfilter.Decode(answers[0])
	if err != nil {
		return 0, false, err
	}
	for decoder.Next() {
		if decoder.Type() == unix.NFTA_OBJ_DATA {
			packets = parseCounter(decoder)
		}
	}
	return packets, true, describe("reading a counter", decoder.Err())
}

// Watch calls removed whenever a program removes the table, and after the kernel has dropped messages, as the removal may
// have been among them. It returns when the connection fails or is closed.
func Watch(connection *netlink.Conn, table string, removed func()) error {
	for {
		messages, err := connection.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			removed()
			continue
		}
		if err != nil {
			return describe("watching the rules", err)
		}
		for _, message := range messages {
			if deletes(message, table) {
				removed()
			}
		}
	}
}

// OpenWatch opens a connection for Watch. Changes from now on are announced on it.
func OpenWatch() (*netlink.Conn, error) {
	return netfilter.Dial(rulesGroup)
}

func deletes(message netlink.Message, table string) bool {
	if message.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE {
		return false
	}
	attributes, ok := netfilter.Attributes(message)
	if !ok {
		return false
	}
	decoder, err := netfilter.Decode(attributes)
	if err != nil {
		return false
	}
	for decoder.Next() {
		if decoder.Type() == unix.NFTA_TABLE_NAME && decoder.String() == table {
			return true
		}
	}
	return false
}

func parseElements(attributes []byte) ([]Element, error) {
	elements := []Element{}
	decoder, err := netfilter.Decode(attributes)
	if err != nil {
		return nil, err
	}
	for decoder.Next() {
		if decoder.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		decoder.Nested(func(list *netlink.AttributeDecoder) error {
			for list.Next() {
				list.Nested(func(element *netlink.AttributeDecoder) error {
					if found := parseElement(element); found.Key != nil {
						elements = append(elements, found)
					}
					return nil
				})
			}
			return nil
		})
	}
	return elements, decoder.Err()
}

func parseElement(attributes *netlink.AttributeDecoder) Element {
	element := Element{Remaining: math.MaxInt64}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			attributes.Nested(func(data *netlink.AttributeDecoder) error {
				for data.Next() {
					if data.Type() == dataValue {
						element.Key = data.Bytes()
					}
				}
				return nil
			})
		case unix.NFTA_SET_ELEM_EXPIRATION:
			element.Remaining = time.Duration(attributes.Uint64()) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			element.Packets = parseExpression(attributes)
		case elementExpressions:
			attributes.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					if list.Type() == listElement {
						element.Packets = parseExpression(list)
					}
				}
				return nil
			})
		}
	}
	return element
}

// parseExpression returns the packets of a counter expression.
func parseExpression(attribute *netlink.AttributeDecoder) (packets uint64) {
	attribute.Nested(func(expression *netlink.AttributeDecoder) error {
		for expression.Next() {
			if expression.Type() == unix.NFTA_EXPR_DATA {
				packets = parseCounter(expression)
			}
		}
		return nil
	})
	return packets
}

func parseCounter(attribute *netlink.AttributeDecoder) (packets uint64) {
	attribute.Nested(func(counter *netlink.AttributeDecoder) error {
		for counter.Next() {
			if counter.Type() == unix.NFTA_COUNTER_PACKETS {
				packets = counter.Uint64()
			}
		}
		return nil
	})
	return packets
}

func describe(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}
