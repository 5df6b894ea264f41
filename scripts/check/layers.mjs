/**
 * The layers of the product, from the top down: a higher layer may load lower ones. `.` stands for the files in the
 * root itself. Folders of one layer may load each other, but not in a cycle.
 */
import { join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';

/**
 * @typedef {object} Layers
 * @property {string} root  path of a folder
 * @property {readonly (readonly string[])[]} layers  all folders in the root
 */

const SERVER = 'packages/server/src';

/**
 * @typedef {object} Secluded
 * @property {string} root
 * @property {string} folder  path of a folder in the root
 * @property {readonly string[]} importers  the only files outside the folder that may import from it, even types
 */

/**
 * Folders behind an interface. Tests are not bound.
 * @type {readonly Secluded[]}
 */
export const SECLUDED = [
  // Behind runner/vm/vmm.ts.
  { root: join(REPOSITORY, SERVER), folder: 'runner/qemu', importers: ['runner/open-vmm.ts'] },
];

/** @type {readonly Layers[]} */
export const LAYERS = [
  {
    root: SERVER,
    layers: [['.', 'commands', 'diagnosis'], ['config'], ['control', 'runner', 'egress'], ['lib']],
  },
  {
    root: `${SERVER}/control`,
    layers: [
      ['.'],
      ['http'],
      [
        'accounts',
        'audit',
        'auth',
        'authority',
        'backup',
        'billing',
        'commands',
        'disks',
        'egress',
        'events',
        'image-builds',
        'images',
        'internal',
        'limits',
        'metrics',
        'operator',
        'ports',
        'registries',
        'runners',
        'sandbox',
        'schema',
        'secrets',
        'snapshots',
        'static-site',
        'streams',
        'time',
        'webhooks',
      ],
      ['db', 'ownership', 'placement'],
    ],
  },
  {
    root: `${SERVER}/control/http`,
    layers: [
      ['.'],
      ['openapi'],
      ['account', 'endpoints', 'forwarding'],
      ['access', 'answers', 'requests', 'serving'],
    ],
  },
  { root: `${SERVER}/control/accounts`, layers: [['.'], ['bootstrap'], ['organizations'], ['sign-in']] },
  {
    root: `${SERVER}/control/billing`,
    layers: [['.'], ['budgets'], ['credit', 'statement'], ['consumption', 'storage'], ['months']],
  },
  { root: `${SERVER}/control/sandbox`, layers: [['.'], ['live'], ['commands'], ['record']] },
  {
    root: `${SERVER}/runner`,
    layers: [
      ['.'],
      ['http'],
      ['metrics'],
      ['driver'],
      ['image-objects'],
      ['capture-objects'],
      ['accelerator', 'capacity', 'snapshot'],
      ['workspace'],
      [
        'agent-client',
        'cache',
        'confinement',
        'disk',
        'host-ranges',
        'identity',
        'image',
        'machine',
        'network',
        'qemu',
      ],
      ['vm'],
      ['host'],
    ],
  },
  {
    root: `${SERVER}/egress`,
    layers: [['.'], ['credentials', 'dns', 'notes', 'proxy'], ['first-bytes', 'upstream'], ['names']],
  },
  {
    root: 'packages/cli/src',
    layers: [
      ['.', 'admin'],
      ['commands'],
      ['calls'],
      ['ssh'],
      ['attach', 'audit', 'completion', 'copy', 'images'],
      ['profiles'],
      ['output'],
    ],
  },
  { root: 'packages/mcp/src', layers: [['.'], ['tools'], ['definition', 'output']] },
  { root: 'packages/dashboard/src', layers: [['.'], ['app'], ['pages'], ['ui'], ['service']] },
  {
    root: 'packages/docs-site/src',
    layers: [['.'], ['pages'], ['api', 'layout'], ['markdown', 'search'], ['sources'], ['html']],
  },
].map(({ root, layers }) => ({ root: join(REPOSITORY, root), layers }));
