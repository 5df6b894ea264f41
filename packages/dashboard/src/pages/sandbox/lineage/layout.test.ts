import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildFamily } from './family.ts';
import { drawLines, layOut, stepOf, type Row } from './layout.ts';

function node(id: string, parentId: string | null, isEnded = false) {
  const createdAt = '2026-11-01T00:00:00.000Z';
  return {
    id,
    parentId,
    status: isEnded ? 'destroyed' : 'running',
    createdAt,
    endedAt: isEnded ? createdAt : null,
  };
}

const familyOf = (sandboxes: readonly ReturnType<typeof node>[]) =>
  buildFamily({ sandboxes, snapshots: [], origins: new Map() });

/**
 *     a ─┬─ b ─┬─ b1 ── b11
 *        │     └─ b2
 *        └─ c (ended) ── c1 (ended)
 */
const FAMILY = familyOf([
  node('a', null),
  node('b', 'a'),
  node('b1', 'b'),
  node('b11', 'b1'),
  node('b2', 'b'),
  node('c', 'a', true),
  node('c1', 'c', true),
]);
const VIEW = { closed: new Set<string>(), isLiveOnly: false, currentId: 'a' };
const ids = (rows: readonly Row[]): string[] => rows.map(({ node: { id } }) => id);

test('rows are in order with their depth, and with lines of ancestors that have more children', () => {
  const rows = layOut(FAMILY, VIEW);
  assert.deepEqual(
    rows.map(({ node: { id }, depth, position, siblings, rails }) => [id, depth, position, siblings, rails]),
    [
      ['a', 0, 1, 1, []],
      ['b', 1, 1, 2, []],
      ['b1', 2, 1, 2, [true]],
      ['b11', 3, 1, 1, [true, true]],
      ['b2', 2, 2, 2, [true]],
      ['c', 1, 2, 2, []],
      ['c1', 2, 1, 1, [false]],
    ],
  );
});

test('a closed node hides everything below it', () => {
  const rows = layOut(FAMILY, { ...VIEW, closed: new Set(['b']) });
  assert.deepEqual(ids(rows), ['a', 'b', 'c', 'c1']);
  assert.deepEqual(
    rows.map(({ isOpen }) => isOpen),
    [true, false, true, undefined],
  );
});

test('without ended sandboxes, those stay that something live descends from, and the present one', () => {
  const family = familyOf([
    node('a', null, true),
    node('b', 'a'),
    node('c', 'a', true),
    node('d', 'a', true),
  ]);
  const rows = layOut(family, { ...VIEW, isLiveOnly: true, currentId: 'd' });
  assert.deepEqual(ids(rows), ['a', 'b', 'd']);
  assert.deepEqual(
    rows.map(({ position, siblings }) => [position, siblings]),
    [
      [1, 1],
      [1, 2],
      [2, 2],
    ],
  );
});

test('a row draws the line from its parent, the lines that pass, and the line to its children', () => {
  const [a, b, b1] = layOut(FAMILY, VIEW) as [Row, Row, Row];
  assert.equal(drawLines(a, 20, 40), 'M10 20V40');
  assert.equal(drawLines(b, 20, 40), 'M10 0V10Q10 20 20 20H30M10 10V40M30 20V40');
  assert.equal(drawLines(b1, 20, 40), 'M10 0V40M30 0V10Q30 20 40 20H50M30 10V40M50 20V40');
});

test('deep families are indented less, and never more than half of the width as long as a step is visible', () => {
  const deep = familyOf(
    Array.from({ length: 40 }, (_, index) => node(`n${index}`, index === 0 ? null : `n${index - 1}`)),
  );
  assert.equal(stepOf(layOut(FAMILY, VIEW), 800), 24);
  assert.equal(stepOf(layOut(deep, VIEW), 800), 10);
  assert.equal(stepOf(layOut(deep, VIEW), 300), 5);
});
