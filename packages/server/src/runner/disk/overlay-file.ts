/** Creates the files of overlays. */
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { invariant } from '../../lib/invariant.ts';
import { giveTo } from '../host/file-owner.ts';

const MIB = 1024 * 1024;
const HEADER_BYTES = 104;
const REFCOUNT_ORDER = 4;
const EXTENDED_L2 = 1 << 4;

/** How the data is divided. */
interface Format {
  clusterBits: number;
  /** Size of an entry of an L2 table, of which there is one per cluster. */
  l2EntryBytes: 8 | 16;
  incompatibleFeatures: number;
}

const SCRATCH: Format = { clusterBits: 16, l2EntryBytes: 8, incompatibleFeatures: 0 };
/**
 * With subclusters of 4 KiB a guest's write neither waits for the block server, to fill a cluster, nor is uploaded as a
 * whole cluster.
 */
const WORKSPACE: Format = { clusterBits: 17, l2EntryBytes: 16, incompatibleFeatures: EXTENDED_L2 };

/**
 * The header, the reference count table, one reference count block, and the L1 table, with room for 4 TiB scratch disks
 * and 16 TiB persistent disks.
 */
const CLUSTERS = { header: 0, refcountTable: 1, refcountBlock: 2, l1Table: 3 } as const;
const CLUSTER_COUNT = 4;
/** Size of the file of a persistent disk's overlay while it has no data. */
export const EMPTY_WORKSPACE_BYTES = CLUSTER_COUNT << WORKSPACE.clusterBits;

/**
 * Writes an empty qcow2 file of that virtual size, like `qemu-img create`. Running that program would delay each VM
 * start too much. The file names no backing file: the process that opens it must supply one.
 */
export function makeOverlay(path: string, { sizeMiB, uid }: { sizeMiB: number; uid: number }): void {
  writeEmpty(path, SCRATCH, { sizeBytes: sizeMiB * MIB, flag: 'w' });
  giveTo(path, uid);
}

/**
 * Like {@link makeOverlay}, for a persistent disk. The size is a multiple of 4096. Syncs nothing. Throws if the file
 * exists: it may be the top of the disk.
 */
export function makeWorkspaceOverlay(
  path: string,
  { sizeBytes, uid }: { sizeBytes: number; uid: number },
): void {
  writeEmpty(path, WORKSPACE, { sizeBytes, flag: 'wx' });
  giveTo(path, uid);
}

function writeEmpty(
  path: string,
  format: Format,
  { sizeBytes, flag }: { sizeBytes: number; flag: 'w' | 'wx' },
): void {
  const clusterBytes = 1 << format.clusterBits;
  const header = buildHeader(format, sizeBytes);
  const file = openSync(path, flag, 0o600);
  try {
    ftruncateSync(file, CLUSTER_COUNT * clusterBytes);
    writeSync(file, header, 0, HEADER_BYTES, 0);
    const block = Buffer.alloc(8);
    block.writeBigUInt64BE(BigInt(CLUSTERS.refcountBlock * clusterBytes));
    writeSync(file, block, 0, block.length, CLUSTERS.refcountTable * clusterBytes);
    const counts = Buffer.alloc(2 * CLUSTER_COUNT);
    for (let cluster = 0; cluster < CLUSTER_COUNT; cluster += 1) counts.writeUInt16BE(1, 2 * cluster);
    writeSync(file, counts, 0, counts.length, CLUSTERS.refcountBlock * clusterBytes);
  } finally {
    closeSync(file);
  }
}

/** Builds a version 3 header: see docs/interop/qcow2.txt of QEMU. */
function buildHeader({ clusterBits, l2EntryBytes, incompatibleFeatures }: Format, sizeBytes: number): Buffer {
  const clusterBytes = 1 << clusterBits;
  // Bytes that one entry of the L1 table covers: an L2 table is one cluster.
  const l1EntryBytes = (clusterBytes / l2EntryBytes) * clusterBytes;
  const l1Entries = Math.ceil(sizeBytes / l1EntryBytes);
  invariant(l1Entries * 8 <= clusterBytes, 'the L1 table of an overlay fits into one cluster');
  const header = Buffer.alloc(HEADER_BYTES);
  header.write('QFI\u{fb}', 0, 'latin1');
  header.writeUInt32BE(3, 4);
  header.writeUInt32BE(clusterBits, 20);
  header.writeBigUInt64BE(BigInt(sizeBytes), 24);
  header.writeUInt32BE(l1Entries, 36);
  header.writeBigUInt64BE(BigInt(CLUSTERS.l1Table * clusterBytes), 40);
  header.writeBigUInt64BE(BigInt(CLUSTERS.refcountTable * clusterBytes), 48);
  header.writeUInt32BE(1, 56);
  header.writeBigUInt64BE(BigInt(incompatibleFeatures), 72);
  header.writeUInt32BE(REFCOUNT_ORDER, 96);
  header.writeUInt32BE(HEADER_BYTES, 100);
  return header;
}
