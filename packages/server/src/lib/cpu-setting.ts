/**
 * CPU of new VMs. `host`: all host features that captures can carry; a level: the same on all hosts that support it.
 */
export const CPU_SETTINGS = ['host', 'x86-64-v2', 'x86-64-v3', 'x86-64-v4'] as const;
export type CpuSetting = (typeof CPU_SETTINGS)[number];
