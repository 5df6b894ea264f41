package nbd

import (
	"encoding/binary"
	"fmt"
	"io"
)

var be = binary.BigEndian

// handshake negotiates until the client chooses an export.
func (c *connection) handshake() error {
	head := be.AppendUint64(nil, magicInit)
	head = be.AppendUint64(head, magicOpts)
	head = be.AppendUint16(head, flagFixedNewstyle|flagNoZeroes)
	if err := c.write(head); err != nil {
		return err
	}
	flags, err := c.read(4)
	if err != nil {
		return err
	}
	if be.Uint32(flags)&flagFixedNewstyle == 0 {
		return fmt.Errorf("the client has the flags %#x", be.Uint32(flags))
	}
	c.isZeroless = be.Uint32(flags)&flagNoZeroes != 0
	for c.export == nil {
		header, err := c.read(16)
		if err != nil {
			return err
		}
		option, length := be.Uint32(header[8:]), be.Uint32(header[12:])
		if be.Uint64(header) != magicOpts || length > maxOptionBytes {
			return fmt.Errorf("the client sent an option of %d bytes", length)
		}
		data, err := c.read(int(length))
		if err != nil {
			return err
		}
		if err := c.negotiate(option, data); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) negotiate(option uint32, data []byte) error {
	switch option {
	case optExportName:
		return c.chooseOldStyle(string(data))
	case optAbort:
		_ = c.reply(option, repAck, nil)
		return errGone
	case optList:
		return c.reply(option, repAck, nil)
	case optInfo, optGo:
		return c.choose(option, data)
	case optStructuredReply:
		if len(data) > 0 {
			return c.reply(option, repErrInvalid, nil)
		}
		c.isStructured = true
		return c.reply(option, repAck, nil)
	case optListMetaContext, optSetMetaContext:
		return c.metaContext(option, data)
	default:
		return c.reply(option, repErrUnsup, nil)
	}
}

func (c *connection) reply(option, kind uint32, data []byte) error {
	message := be.AppendUint64(nil, magicReply)
	message = be.AppendUint32(message, option)
	message = be.AppendUint32(message, kind)
	message = be.AppendUint32(message, uint32(len(data)))
	return c.write(append(message, data...))
}

func transmissionFlags() uint16 {
	return transmissionHasFlags | transmissionReadOnly | transmissionSendFlush | transmissionCanMultiConn |
		transmissionSendDF | transmissionSendCache
}

// chooseOldStyle has no way to refuse but to end the connection.
func (c *connection) chooseOldStyle(name string) error {
	export, err := c.server.exports.Find(c.context, name)
	if err != nil {
		return err
	}
	message := be.AppendUint64(nil, uint64(export.Size()))
	message = be.AppendUint16(message, transmissionFlags())
	if !c.isZeroless {
		message = append(message, make([]byte, 124)...)
	}
	c.export, c.exportName = export, name
	return c.write(message)
}

func (c *connection) choose(option uint32, data []byte) error {
	name, _, ok := cutString(data)
	if !ok {
		return c.reply(option, repErrInvalid, nil)
	}
	export, err := c.server.exports.Find(c.context, name)
	if err != nil {
		return c.reply(option, repErrUnknown, []byte("there is no such export"))
	}
	info := be.AppendUint16(nil, infoExport)
	info = be.AppendUint64(info, uint64(export.Size()))
	info = be.AppendUint16(info, transmissionFlags())
	if err := c.reply(option, repInfo, info); err != nil {
		return err
	}
	sizes := be.AppendUint16(nil, infoBlockSize)
	for _, size := range []uint32{minBlock, preferredBlock, maxRequestBytes} {
		sizes = be.AppendUint32(sizes, size)
	}
	if err := c.reply(option, repInfo, sizes); err != nil {
		return err
	}
	if option == optGo {
		c.export, c.exportName = export, name
	}
	return c.reply(option, repAck, nil)
}

func (c *connection) metaContext(option uint32, data []byte) error {
	_, rest, ok := cutString(data)
	if !ok || len(rest) < 4 || !c.isStructured {
		return c.reply(option, repErrInvalid, nil)
	}
	count := be.Uint32(rest)
	rest = rest[4:]
	isWanted := count == 0 && option == optListMetaContext
	for range count {
		var query string
		if query, rest, ok = cutString(rest); !ok {
			return c.reply(option, repErrInvalid, nil)
		}
		isWanted = isWanted || query == allocationContext || query == "base:" && option == optListMetaContext
	}
	if option == optSetMetaContext {
		c.hasAllocation = isWanted
	}
	if isWanted {
		data := append(be.AppendUint32(nil, allocationContextID), allocationContext...)
		if err := c.reply(option, repMetaContext, data); err != nil {
			return err
		}
	}
	return c.reply(option, repAck, nil)
}

// cutString takes a string with its length before it.
func cutString(data []byte) (text string, rest []byte, ok bool) {
	if len(data) < 4 {
		return "", nil, false
	}
	length := be.Uint32(data)
	if length > maxNameBytes || int(length) > len(data)-4 {
		return "", nil, false
	}
	return string(data[4 : 4+length]), data[4+length:], true
}

func (c *connection) read(length int) ([]byte, error) {
	content := make([]byte, length)
	_, err := io.ReadFull(c.in, content)
	return content, err
}
