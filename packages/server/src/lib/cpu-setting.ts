/** What new VMs get: all that the host has and copies can carry, or the same on all hosts that have the level. */
export const CPU_SETTINGS = ['host', 'x86-64-v2', 'x86-64-v3', 'x86-64-v4'] as const;
export type CpuSetting = (typeof CPU_SETTINGS)[number];
