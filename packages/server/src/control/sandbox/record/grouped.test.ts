import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Grouped } from './grouped.ts';

test('after any sets and deletes, each list equals that of a plain map', () => {
  const step = fc.record({
    organization: fc.constantFrom('org1', 'org2', 'org3'),
    number: fc.nat({ max: 5 }),
    isSet: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const index = new Grouped<string>();
      const model = new Map<string, { organization: string; value: string }>();
      for (const [at, { organization, number, isSet }] of steps.entries()) {
        const id = `${organization}-${number}`;
        const value = `${id}, step ${at}`;
        if (isSet) {
          index.set(organization, id, value);
          model.set(id, { organization, value });
        } else {
          index.delete(organization, id);
          model.delete(id);
        }
        assert.equal(index.get(id), model.get(id)?.value);
      }
      const values = [...model.values()];
      assert.deepEqual(index.list().toSorted(), values.map(({ value }) => value).toSorted());
      for (const organization of ['org1', 'org2', 'org3', 'org4'])
        assert.deepEqual(
          index.listOf(organization).toSorted(),
          values
            .filter((one) => one.organization === organization)
            .map(({ value }) => value)
            .toSorted(),
        );
    }),
  );
});

test('an id is deleted only from its own group', () => {
  const index = new Grouped<number>();
  index.set('org1', 'a', 1);
  index.delete('org2', 'a');
  assert.equal(index.get('a'), 1);
  assert.deepEqual(index.listOf('org1'), [1]);
});
