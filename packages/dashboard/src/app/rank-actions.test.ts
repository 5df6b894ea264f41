import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rankActions, type QuickAction } from './rank-actions.ts';

const action = (label: string, words = ''): QuickAction => ({ label, href: `/${label}`, icon: 'box', words });
const ACTIONS = [action('Usage', 'cost billing'), action('Sandboxes'), action('Create a sandbox', 'new')];
const rank = (query: string) => rankActions(ACTIONS, query).map(({ label }) => label);

test('labels that begin with the query come before those that contain it', () => {
  assert.deepEqual(rank('sand'), ['Sandboxes', 'Create a sandbox']);
  assert.deepEqual(rank('SANDBOX'), ['Sandboxes', 'Create a sandbox']);
});

test('every word must occur, in the label or among the other words', () => {
  assert.deepEqual(rank('new sand'), ['Create a sandbox']);
  assert.deepEqual(rank('cost'), ['Usage']);
  assert.deepEqual(rank('cost sand'), []);
});

test('an empty query shows all in their order', () => {
  assert.deepEqual(rank('  '), ['Usage', 'Sandboxes', 'Create a sandbox']);
});
