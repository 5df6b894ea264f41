/** Creates the files of overlays. */
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { giveTo } from '../host/file-owner.ts';

const MIB = 1024 * 1024;
const CLUSTER_BITS = 16;
const CLUSTER_BYTES = 1 << CLUSTER_BITS;
/** Bytes covered by one entry of the L1 table: a cluster full of 8-byte entries, one per cluster. */
const L1_ENTRY_BYTES = (CLUSTER_BYTES / 8) * CLUSTER_BYTES;
const HEADER_BYTES = 104;
const REFCOUNT_ORDER = 4;
/** The header, the reference count table, one reference count block, and the L1 table (with room for 4 TiB disks). */
const CLUSTERS = { header: 0, refcountTable: 1, refcountBlock: 2, l1Table: 3 } as const;
const CLUSTER_COUNT = 4;

/**
 * Writes an empty qcow2 file of that virtual size, like `qemu-img create`. Running that program would delay each VM
 * start too much. The file names no backing file: the process that opens it must supply one.
 */
export function makeOverlay(path: string, { sizeMiB, uid }: { sizeMiB: number; uid: number }): void {
  const file = openSync(path, 'w', 0o600);
  try {
    ftruncateSync(file, CLUSTER_COUNT * CLUSTER_BYTES);
    writeSync(file, buildHeader(sizeMiB * MIB), 0, HEADER_BYTES, 0);
    const block = Buffer.alloc(8);
    block.writeBigUInt64BE(BigInt(CLUSTERS.refcountBlock * CLUSTER_BYTES));
    writeSync(file, block, 0, block.length, CLUSTERS.refcountTable * CLUSTER_BYTES);
    const counts = Buffer.alloc(2 * CLUSTER_COUNT);
    for (let cluster = 0; cluster < CLUSTER_COUNT; cluster += 1) counts.writeUInt16BE(1, 2 * cluster);
    writeSync(file, counts, 0, counts.length, CLUSTERS.refcountBlock * CLUSTER_BYTES);
  } finally {
    closeSync(file);
  }
  giveTo(path, uid);
}

/** Builds a version 3 header without any feature: see docs/interop/qcow2.txt of QEMU. */
function buildHeader(sizeBytes: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.write('QFI\u{fb}', 0, 'latin1');
  header.writeUInt32BE(3, 4);
  header.writeUInt32BE(CLUSTER_BITS, 20);
  header.writeBigUInt64BE(BigInt(sizeBytes), 24);
  header.writeUInt32BE(Math.ceil(sizeBytes / L1_ENTRY_BYTES), 36);
  header.writeBigUInt64BE(BigInt(CLUSTERS.l1Table * CLUSTER_BYTES), 40);
  header.writeBigUInt64BE(BigInt(CLUSTERS.refcountTable * CLUSTER_BYTES), 48);
  header.writeUInt32BE(1, 56);
  header.writeUInt32BE(REFCOUNT_ORDER, 96);
  header.writeUInt32BE(HEADER_BYTES, 100);
  return header;
}
