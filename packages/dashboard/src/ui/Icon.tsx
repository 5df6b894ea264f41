/** Line icons on a grid of 24. The paths are drawn with the colour of the text. */
const PATHS = {
  alert: 'M12 9v4m0 4h.01M10.3 3.9 1.8 18a2 2 0 0 0 1.7 3h17a2 2 0 0 0 1.7-3L13.7 3.9a2 2 0 0 0-3.4 0z',
  archive: 'M3 4h18v5H3zM5 9v11h14V9M10 13h4',
  arrowLeft: 'M19 12H5m7 7-7-7 7-7',
  box: 'M21 8 12 3 3 8v8l9 5 9-5zM3 8l9 5 9-5M12 13v8',
  building: 'M4 21V5l8-3 8 3v16M9 9h.01M15 9h.01M9 13h.01M15 13h.01M10 21v-4h4v4M2 21h20',
  chart: 'M3 3v18h18M7 15l4-5 4 3 5-7',
  check: 'm4 12 5 5L20 6',
  chevron: 'm6 9 6 6 6-6',
  chevronRight: 'm9 6 6 6-6 6',
  clock: 'M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z',
  close: 'M6 6l12 12M18 6 6 18',
  code: 'm8 7-5 5 5 5M16 7l5 5-5 5',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  disk: 'M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3',
  download: 'M12 3v12m-5-5 5 5 5-5M4 21h16',
  external: 'M14 4h6v6M20 4l-9 9M18 14v6H4V6h6',
  file: 'M14 3H6v18h12V7zM14 3v4h4',
  folder: 'M3 6h6l2 2h10v11H3z',
  fork: 'M6 8v8M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM6 21a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM18 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM18 8c0 5-5 4-10 7',
  hook: 'M18 16a3 3 0 1 1-3 3h-4.5M6 13a3.5 3.5 0 1 0 4 5l4-7M9 5a3.5 3.5 0 0 1 6.5 2L14 9.5l4 6.5M9 5a3.5 3.5 0 0 0 1.5 5L7 16',
  key: 'M15 9a5 5 0 1 1-3.7-3.7L21 3v4l-2 1v2h-2l-2 2M8 12h.01',
  layers: 'm12 3 9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5',
  lock: 'M5 11h14v10H5zM8 11V7a4 4 0 0 1 8 0v4',
  log: 'M5 3h14v18H5zM9 8h6M9 12h6M9 16h4',
  logout: 'M9 21H4V3h5M16 17l5-5-5-5M21 12H9',
  menu: 'M4 6h16M4 12h16M4 18h16',
  moon: 'M20 14.5A8.5 8.5 0 1 1 9.5 4 7 7 0 0 0 20 14.5z',
  more: 'M5 12h.01M12 12h.01M19 12h.01',
  network: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18',
  pause: 'M8 5v14M16 5v14',
  people:
    'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21c0-4 3-6 7-6s7 2 7 6M16 3.5a4 4 0 0 1 0 7M18 15c2.5.5 4 2.5 4 6',
  play: 'M7 4v16l13-8z',
  plus: 'M12 5v14M5 12h14',
  refresh: 'M20 11a8 8 0 1 0-2 6M20 4v7h-7',
  rewind: 'M4 4v6h6M4 10a8 8 0 1 1 1 6',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  server: 'M3 4h18v7H3zM3 13h18v7H3zM7 7.5h.01M7 16.5h.01',
  settings:
    'M4 7h10M18 7h2M4 17h2M10 17h10M16 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 19a2 2 0 1 0 0-4 2 2 0 0 0 0 4z',
  snapshot: 'M4 7h4l2-3h4l2 3h4v13H4zM12 17a4 4 0 1 0 0-8 4 4 0 0 0 0 8z',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M19 5l-1.4 1.4M6.4 17.6 5 19',
  terminal: 'm5 7 5 5-5 5M12 19h7',
  trash: 'M4 6h16M9 6V3h6v3M6 6l1 15h10l1-15',
  upload: 'M12 16V4m-5 5 5-5 5 5M4 21h16',
} as const;

export type IconName = keyof typeof PATHS;

/** An icon beside a text, or in a button that has its own label: readers skip it. */
export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
