import assert from 'node:assert/strict';
import { test } from 'node:test';
import { orderModules, parseModule } from './kernel-modules.mjs';
import { SetupError } from '../setup-error.mjs';

/**
 * @param {Record<string, string[]>} dependencies
 * @param {string[]} builtin
 */
function fakeTree(dependencies, builtin = []) {
  return {
    builtin: new Set(builtin),
    find: (/** @type {string} */ name) =>
      dependencies[name] === undefined
        ? undefined
        : { name, content: Buffer.from(name), depends: dependencies[name], aliases: [] },
  };
}

test('every module comes once, after its dependencies, and built-in modules are left out', () => {
  const tree = fakeTree(
    {
      virtio_net: ['virtio', 'net_failover'],
      net_failover: ['failover'],
      failover: [],
      virtio: ['virtio_ring'],
      virtio_ring: [],
      virtio_blk: ['virtio'],
    },
    ['ext4'],
  );
  const order = orderModules(tree, { required: ['virtio-blk', 'ext4', 'virtio_net'], optional: ['tun'] }).map(
    ({ name }) => name,
  );
  assert.deepEqual(order, ['virtio_ring', 'virtio', 'virtio_blk', 'failover', 'net_failover', 'virtio_net']);
});

test('a missing module is an error that names it and the module that needs it', () => {
  const tree = fakeTree({ overlay: ['exportfs'] });
  assert.throws(
    () => orderModules(tree, { required: ['overlay'], optional: [] }),
    (error) => error instanceof SetupError && /exportfs, needed by overlay/.test(error.message),
  );
});

/** @param {string} modinfo */
function buildElf(modinfo) {
  const names = Buffer.from('\0.modinfo\0.shstrtab\0');
  const info = Buffer.from(modinfo);
  const header = Buffer.alloc(64);
  header.writeUInt32BE(0x7f454c46, 0);
  header[4] = 2;
  const table = 64 + info.length + names.length;
  header.writeBigUInt64LE(BigInt(table), 0x28);
  header.writeUInt16LE(64, 0x3a);
  header.writeUInt16LE(3, 0x3c);
  header.writeUInt16LE(2, 0x3e);
  const section = (/** @type {number} */ name, /** @type {number} */ offset, /** @type {number} */ size) => {
    const entry = Buffer.alloc(64);
    entry.writeUInt32LE(name, 0);
    entry.writeBigUInt64LE(BigInt(offset), 0x18);
    entry.writeBigUInt64LE(BigInt(size), 0x20);
    return entry;
  };
  return Buffer.concat([
    header,
    info,
    names,
    section(0, 0, 0),
    section(1, 64, info.length),
    section(10, 64 + info.length, names.length),
  ]);
}

test('dependencies and aliases are read from the module file', () => {
  const elf = buildElf(
    'alias=rtnl-link-x\0license=GPL\0alias=ipt_X\0depends=virtio-ring,failover\0vermagic=6.1\0',
  );
  assert.deepEqual(parseModule(elf, 'x.ko'), {
    depends: ['virtio_ring', 'failover'],
    aliases: ['rtnl-link-x', 'ipt_X'],
  });
  assert.deepEqual(parseModule(buildElf('license=GPL\0depends=\0'), 'x.ko'), { depends: [], aliases: [] });
});

test('a file that is not a module is refused with its name', () => {
  assert.throws(() => parseModule(Buffer.from('not a module'), '/modules/x.ko'), /x\.ko is no 64-bit ELF/);
});
