/** Settings of the limits of each organization and of credit. */
import { z } from 'zod';
import type { ControlConfig } from '../control/control-config.ts';

const GIBIBYTE = 2 ** 30;
const CENTS_PER_USD = 100;

const count = () => z.coerce.number().int().min(0).max(1_000_000_000);

/** 0 means no limit, except for the snapshot quota. */
export const ACCOUNT_SETTINGS = {
  COPPICE_SNAPSHOT_QUOTA_GIB: z.coerce.number().min(0).max(1_000_000).default(100),
  COPPICE_ORG_DISKS: count().default(100),
  COPPICE_ORG_DISK_GB: count().default(1024),
  COPPICE_ORG_SANDBOXES: count().default(1000),
  COPPICE_ORG_VCPUS: count().default(0),
  COPPICE_ORG_MEM_MIB: count().default(0),
  COPPICE_ORG_OPEN_REQUESTS: count().default(256),
  COPPICE_ORG_OPEN_STREAMS: count().default(10_000),
  COPPICE_RATE_LIMIT_RPS: count().default(1000),
  COPPICE_RATE_LIMIT_BURST: count().min(1).default(2000),
  COPPICE_CREDIT_USD: z.coerce.number().min(0).max(1_000_000_000).optional(),
  COPPICE_CREDIT_GRACE_SECONDS: count().default(300),
};
type AccountSettings = z.infer<z.ZodObject<typeof ACCOUNT_SETTINGS>>;

export function readAccountLimits(settings: AccountSettings): Pick<ControlConfig, 'limits' | 'creditCents'> {
  const { COPPICE_CREDIT_USD: creditUsd } = settings;
  return {
    limits: {
      snapshotBytesPerOrganization: Math.round(settings.COPPICE_SNAPSHOT_QUOTA_GIB * GIBIBYTE),
      disksPerOrganization: settings.COPPICE_ORG_DISKS,
      diskGbPerOrganization: settings.COPPICE_ORG_DISK_GB,
      sandboxesPerOrganization: settings.COPPICE_ORG_SANDBOXES,
      vcpusPerOrganization: settings.COPPICE_ORG_VCPUS,
      memMiBPerOrganization: settings.COPPICE_ORG_MEM_MIB,
      openRequestsPerOrganization: settings.COPPICE_ORG_OPEN_REQUESTS,
      openStreamsPerOrganization: settings.COPPICE_ORG_OPEN_STREAMS,
      requestsPerSecond: settings.COPPICE_RATE_LIMIT_RPS,
      requestBurst: settings.COPPICE_RATE_LIMIT_BURST,
      creditGraceMs: settings.COPPICE_CREDIT_GRACE_SECONDS * 1000,
    },
    ...(creditUsd === undefined ? {} : { creditCents: Math.round(creditUsd * CENTS_PER_USD) }),
  };
}
