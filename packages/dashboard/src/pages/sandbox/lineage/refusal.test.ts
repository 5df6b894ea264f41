import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findRefusal } from './refusal.ts';

test('a request is refused as the tables of states and operations say', () => {
  assert.equal(findRefusal({ status: 'running', operation: null }, 'fork'), undefined);
  assert.equal(findRefusal({ status: 'running', operation: 'forking' }, 'rollback'), undefined);
  assert.equal(findRefusal({ status: 'hibernated', operation: null }, 'fork'), 'Not while it is hibernated.');
  assert.equal(findRefusal({ status: 'hibernated', operation: null }, 'destroy'), undefined);
  assert.equal(findRefusal({ status: 'failed', operation: null }, 'destroy'), 'It has ended.');
  assert.equal(
    findRefusal({ status: 'running', operation: 'destroying' }, 'fork'),
    'Not during this operation: destroying.',
  );
});

test('of unknown states and operations the service decides', () => {
  assert.equal(findRefusal({ status: 'paused', operation: null }, 'fork'), undefined);
  assert.equal(findRefusal({ status: 'running', operation: 'migrating' }, 'fork'), undefined);
});
