import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findTemplate } from './trace-call.ts';

const TEMPLATES: Record<string, string> = {
  '/status': '/status',
  '/vms': '/vms',
  '/vms/run0123456789abcdef0123': '/vms/:vm',
  '/vms/run0123456789abcdef0123/admission': '/vms/:vm/admission',
  '/vms/run0123456789abcdef0123/agent/files?path=%2Fhome%2Fsecret&user=root': '/vms/:vm/agent/files',
  '/vms/vms/agent/commands/watch': '/vms/:vm/agent/commands/watch',
  '/captures/snap0123456789abcdef0123': '/captures/:capture',
  '/disks/org1/disk1': '/disks/:org/:disk',
  '/disks/disks/snapshots': '/disks/:org/:disk',
  '/disks/org1/disk1/snapshots/7': '/disks/:org/:disk/snapshots/:version',
  '/disks/org1/disk1/export?version=7': '/disks/:org/:disk/export',
  '/disks/org1/collect': '/disks/:org/collect',
  '/events/ack': '/events/ack',
};

test('a template has neither ids nor a query', () => {
  for (const [path, template] of Object.entries(TEMPLATES)) assert.equal(findTemplate(path), template, path);
});
