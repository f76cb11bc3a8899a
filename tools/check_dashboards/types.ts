// Grafana's types with enums widened to their values, since JSON holds values.
import type { Dashboard, Panel, RowPanel } from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type * as bargauge from './node_modules/@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/types.gen';
import type * as heatmap from './node_modules/@grafana/schema/dist/types/raw/composable/heatmap/panelcfg/x/types.gen';
import type * as stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as table from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import type * as timeseries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer U)[]
    ? Plain<U>[]
    : T extends object
      ? { [K in keyof T]: Plain<T[K]> }
      : T;

export type Board = Plain<Omit<Dashboard, 'panels'>>;
export type AnyPanel = Plain<Panel>;
export type AnyRow = Plain<RowPanel>;
export type Options = {
  bargauge: Plain<bargauge.Options>;
  heatmap: Plain<heatmap.Options>;
  stat: Plain<stat.Options>;
  table: Plain<table.Options>;
  timeseries: Plain<timeseries.Options>;
};
// What fieldConfig.defaults.custom may hold; a type without fields of its own holds none.
export type Custom = {
  bargauge: Record<string, never>;
  heatmap: Plain<heatmap.FieldConfig>;
  stat: Record<string, never>;
  table: Plain<table.FieldConfig>;
  timeseries: Plain<timeseries.FieldConfig>;
};
