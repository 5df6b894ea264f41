import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { buildIndex, chooseOnDemand, writeOnDemand } from './on-demand-modules.mjs';

/** @type {Record<string, { depends: string[], aliases: string[] }>} */
const MODULES = {
  bridge: { depends: ['llc', 'stp'], aliases: ['rtnl-link-bridge'] },
  stp: { depends: ['llc'], aliases: [] },
  llc: { depends: [], aliases: [] },
  veth: { depends: ['failover'], aliases: ['rtnl-link-veth'] },
  failover: { depends: [], aliases: [] },
  unwanted: { depends: [], aliases: ['net-pf-40'] },
};
const tree = {
  builtin: new Set(['dummy']),
  find: (/** @type {string} */ name) => {
    const found = MODULES[name];
    return found === undefined ? undefined : { name, content: Buffer.from(`code of ${name}`), ...found };
  },
};

test('the index has each wanted module, what to load before it, and its aliases; a module of the boot is in no line', () => {
  assert.deepEqual(
    buildIndex(chooseOnDemand(tree, ['failover']))
      .split('\n')
      .sort(),
    ['', 'bridge llc,stp rtnl_link_bridge', 'llc -', 'stp llc', 'veth - rtnl_link_veth'],
  );
});

test('every module of the index has a compressed file', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-modules-'));
  try {
    await writeOnDemand(chooseOnDemand(tree, []), join(directory, 'on-demand'));
    const index = await readFile(join(directory, 'on-demand', 'index'), 'utf8');
    const names = index
      .trim()
      .split('\n')
      .map((line) => line.split(' ')[0] ?? '');
    assert.deepEqual(names.toSorted(), ['bridge', 'failover', 'llc', 'stp', 'veth']);
    for (const name of names) {
      const file = await readFile(join(directory, 'on-demand', `${name}.ko.gz`));
      assert.equal(gunzipSync(file).toString(), `code of ${name}`);
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});
