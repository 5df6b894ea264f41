import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import fc from 'fast-check';
import { DataLine, newMarker } from './data-line.ts';

function openLine(): Duplex {
  return new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
}

test('the marker is found however it is split, and nothing else matches', async () => {
  // The first byte of the marker occurs nowhere else in it, and the texts have none of its bytes: stale bytes never
  // form a complete marker.
  const marker = `z${newMarker().slice(1)}`;
  const older = fc.array(
    fc.oneof(
      fc.string({ unit: fc.constantFrom('g', 'H', '\n', '\0', 'ü') }),
      fc.nat({ max: 31 }).map((end) => marker.slice(0, end)),
    ),
  );
  await fc.assert(
    fc.asyncProperty(older, fc.nat({ max: 31 }), async (stale, cut) => {
      const socket = openLine();
      const line = new DataLine(socket, marker);
      for (const chunk of [...stale, marker.slice(0, cut)]) if (chunk !== '') socket.push(chunk);
      await assert.rejects(line.passMarker(1), /the agent's marker took longer/u);
      socket.push(marker.slice(cut));
      await line.passMarker(1000);
      assert.equal(line.release().listenerCount('data'), 0);
    }),
    { numRuns: 50 },
  );
});

test('a line that closes before its marker is refused', async () => {
  const socket = openLine();
  const line = new DataLine(socket, newMarker());
  socket.destroy();
  await assert.rejects(line.passMarker(1000), /closed/u);
});
