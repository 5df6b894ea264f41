import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxInfo } from '../../../../sdk/src/index.ts';
import { filterSandboxes } from './filter-sandboxes.ts';

const sandbox = (id: string, more: Partial<SandboxInfo> = {}) =>
  ({ id, name: null, image: 'node:22-slim', status: 'running', labels: {}, ...more }) as SandboxInfo;
const LIST = [
  sandbox('run1', { name: 'Alice', labels: { job: 'nightly' } }),
  sandbox('run2', { status: 'hibernated', image: 'python:3.12-slim' }),
];
const find = (search: string, state: 'all' | 'running' | 'hibernated' = 'all') =>
  filterSandboxes(LIST, { search, state }).map(({ id }) => id);

test('every word of the search occurs in the name, the id, the image or a label', () => {
  assert.deepEqual(find(''), ['run1', 'run2']);
  assert.deepEqual(find('alice'), ['run1']);
  assert.deepEqual(find('job=night node'), ['run1']);
  assert.deepEqual(find('alice python'), []);
});

test('a state leaves out the others', () => {
  assert.deepEqual(find('run', 'hibernated'), ['run2']);
});
