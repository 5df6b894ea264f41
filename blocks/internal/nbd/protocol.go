// Package nbd serves read-only exports by the NBD protocol: fixed newstyle, with structured replies and the allocation of
// blocks for clients that ask for them. Requests of a connection run concurrently, within a limit of memory for all
// connections. A read waits for the store until its deadline; the guest sees only a slow disk.
package nbd

import "errors"

const (
	magicInit  = 0x4e42444d41474943
	magicOpts  = 0x49484156454f5054
	magicReply = 0x0003e889045565a9

	magicRequest    = 0x25609513
	magicSimple     = 0x67446698
	magicStructured = 0x668e33ef

	flagFixedNewstyle = 1
	flagNoZeroes      = 2

	optExportName      = 1
	optAbort           = 2
	optList            = 3
	optInfo            = 6
	optGo              = 7
	optStructuredReply = 8
	optListMetaContext = 9
	optSetMetaContext  = 10

	repAck         = 1
	repInfo        = 3
	repMetaContext = 4
	repErrUnsup    = 1<<31 + 1
	repErrInvalid  = 1<<31 + 3
	repErrUnknown  = 1<<31 + 6

	infoExport    = 0
	infoBlockSize = 3

	transmissionHasFlags     = 1 << 0
	transmissionReadOnly     = 1 << 1
	transmissionSendFlush    = 1 << 2
	transmissionSendDF       = 1 << 7
	transmissionCanMultiConn = 1 << 8
	transmissionSendCache    = 1 << 10

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisc        = 2
	cmdFlush       = 3
	cmdTrim        = 4
	cmdCache       = 5
	cmdWriteZeroes = 6
	cmdBlockStatus = 7

	cmdFlagReqOne = 1 << 3

	replyNone        = 0
	replyOffsetData  = 1
	replyBlockStatus = 5
	replyError       = 1<<15 + 1
	replyFlagDone    = 1

	stateHole = 1
	stateZero = 2

	errPermission = 1
	errIO         = 5
	errInvalid    = 22
	errNotSup     = 95

	maxOptionBytes = 64 << 10
	// maxRequestBytes limits what one read allocates. QEMU divides larger ones.
	maxRequestBytes = 8 << 20
	maxNameBytes    = 4096
	minBlock        = 1
	preferredBlock  = 64 << 10

	allocationContext   = "base:allocation"
	allocationContextID = 1
)

// errGone ends a connection whose client asked for that.
var errGone = errors.New("the client left")
