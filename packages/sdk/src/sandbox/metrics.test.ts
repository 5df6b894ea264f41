import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { LoopbackServer, SANDBOX_ID } from '../testing/loopback-server.ts';

const POINT = {
  at: '2026-11-26T12:00:10.000Z',
  duration_seconds: 10,
  cpu_utilization: 0.5,
  memory_bytes: 1,
  disk_used_bytes: 2,
  disk_read_bytes: 3,
  disk_written_bytes: 4,
  network_received_bytes: 5,
  network_sent_bytes: 6,
  network_received_packets: 7,
  network_sent_packets: 8,
};
const NOW = {
  at: '2026-11-26T12:00:11.000Z',
  cpu: { used_seconds: 1.5, utilization: null },
  memory: { host_bytes: 10, size_bytes: 11 },
  disk: { used_bytes: 12, size_bytes: 13, read_bytes: 14, written_bytes: 15 },
  workspace: { size_bytes: 16, dirty_bytes: 17 },
  network: { received_bytes: 18, sent_bytes: 19, received_packets: 20, sent_packets: 21 },
  guest_reported: {
    memory_total_bytes: 22,
    memory_available_bytes: 23,
    disk_total_bytes: 24,
    disk_used_bytes: 25,
    load1: 0.25,
    processes: 26,
  },
};

test('metrics have the numbers now and the series', async () => {
  await using server = await LoopbackServer.answering(200, { now: NOW, series: [POINT], step_seconds: 10 });
  const metrics = await server.sandbox().metrics();
  assert.equal(`${server.last.method} ${server.last.url}`, `GET /v1/runs/${SANDBOX_ID}/metrics`);
  assert.deepEqual(metrics, {
    now: {
      at: '2026-11-26T12:00:11.000Z',
      cpu: { usedSeconds: 1.5, utilization: null },
      memory: { hostBytes: 10, sizeBytes: 11 },
      disk: { usedBytes: 12, sizeBytes: 13, readBytes: 14, writtenBytes: 15 },
      workspace: { sizeBytes: 16, dirtyBytes: 17 },
      network: { receivedBytes: 18, sentBytes: 19, receivedPackets: 20, sentPackets: 21 },
      guestReported: {
        memoryTotalBytes: 22,
        memoryAvailableBytes: 23,
        diskTotalBytes: 24,
        diskUsedBytes: 25,
        load1: 0.25,
        processes: 26,
      },
    },
    series: [
      {
        at: '2026-11-26T12:00:10.000Z',
        durationSeconds: 10,
        cpuUtilization: 0.5,
        memoryBytes: 1,
        diskUsedBytes: 2,
        diskReadBytes: 3,
        diskWrittenBytes: 4,
        networkReceivedBytes: 5,
        networkSentBytes: 6,
        networkReceivedPackets: 7,
        networkSentPackets: 8,
      },
    ],
    stepSeconds: 10,
  });
});

test('the time and the step of the series are in the query', async () => {
  await using server = await LoopbackServer.answering(200, { now: null, series: [], step_seconds: 60 });
  const { now } = await server.sandbox().metrics({ since: new Date('2026-11-26T12:00:00Z'), step: 60 });
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/metrics?since=2026-11-26T12%3A00%3A00.000Z&step=60`);
  assert.equal(now, null);
});

test('what a sandbox does not have is null', async () => {
  const now = { ...NOW, workspace: null, network: null, guest_reported: null };
  await using server = await LoopbackServer.answering(200, { now, series: [], step_seconds: 10 });
  const metrics = await server.sandbox().metrics();
  assert.deepEqual(
    [metrics.now?.workspace, metrics.now?.network, metrics.now?.guestReported],
    [null, null, null],
  );
});

test('an answer of another form is an invalid response', async () => {
  for (const body of [null, { now: null, step_seconds: 10 }, { now: {}, series: [], step_seconds: 10 }]) {
    await using server = await LoopbackServer.answering(200, body);
    await assert.rejects(
      server.sandbox().metrics(),
      (error) => error instanceof CoppiceError && error.code === 'invalid_response',
    );
  }
});
