/* Clock, temperature and throttling while `bench` measures, from /sys. edgerun/clock.py reads the same files.
 *
 * Sources of "throttled": the Raspberry Pi firmware's word (bits 0-3 now, 16-19 since boot) and voltage alarm, cooling
 * devices that lower the clock of a CPU, and the counters of x86 CPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

#define CPU "/sys/devices/system/cpu/cpu%d/"
static const char zone_file[] = "/sys/class/thermal/thermal_zone%d/temp";
static const char clock_file[] = CPU "cpufreq/scaling_cur_freq";
static const char cooling_type[] = "/sys/class/thermal/cooling_device%d/type";
static const char cooling_state[] = "/sys/class/thermal/cooling_device%d/cur_state";
static const char hwmon_name[] = "/sys/class/hwmon/hwmon%d/name";
static const char hwmon_alarm[] = "/sys/class/hwmon/hwmon%d/in0_lcrit_alarm";
static const char *const counter_files[] = {CPU "thermal_throttle/core_throttle_count",
                                            CPU "thermal_throttle/package_throttle_count"};
static const char *const pi_words[] = {"/sys/bus/platform/devices/soc:firmware/get_throttled",
                                       "/sys/bus/platform/devices/soc@107c000000:firmware/get_throttled",
                                       "/sys/devices/platform/soc/soc:firmware/get_throttled"};
enum { MAX_INDEX = 32 };

const char *const throttle_reason[THROTTLE_REASONS] = {"under-voltage",           "clock capped",
                                                       "throttled",               "soft temperature limit",
                                                       "cooling lowers the clock", "thermal throttling"};
enum { BY_COOLING = 1 << 4, BY_COUNTER = 1 << 5 };

/* The first line of a file whose path holds `index`. Returns whether there is one. */
static int read_indexed(const char *format, int index, char *text, size_t size) {
  char path[96];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(path, sizeof path, format, index);
#pragma GCC diagnostic pop
  read_text(path, text, size);
  return *text != 0;
}

static int read_pi_word(unsigned *word) {
  char text[32];
  for (size_t i = 0; i < sizeof pi_words / sizeof *pi_words; i++) {
    read_text(pi_words[i], text, sizeof text);
    if (!*text) continue;
    *word = (unsigned)strtoul(text, NULL, 16);
    return 1;
  }
  return 0;
}

/* Sum of the throttle counters of all CPUs. Returns whether there is any. */
static int read_counters(uint64_t *sum) {
  char text[32];
  int known = 0;
  *sum = 0;
  for (int cpu = 0; cpu < MAX_INDEX; cpu++)
    for (int k = 0; k < 2; k++)
      if (read_indexed(counter_files[k], cpu, text, sizeof text)) *sum += strtoull(text, NULL, 10), known = 1;
  return known;
}

/* Cooling devices of CPUs ("cpufreq-cpu0", "thermal-cpufreq-0", "Processor") and the Raspberry Pi's voltage alarm. */
static void read_devices(clock_watch *w) {
  char text[64];
  for (int i = 0; i < MAX_INDEX; i++) {
    if (read_indexed(cooling_type, i, text, sizeof text) && (strstr(text, "cpufreq") || strstr(text, "Processor"))) {
      w->known = 1;
      if (read_indexed(cooling_state, i, text, sizeof text) && atoi(text) > 0) w->reasons |= BY_COOLING;
    }
    if (read_indexed(hwmon_name, i, text, sizeof text) && !strcmp(text, "rpi_volt")) {
      w->known = 1;
      if (read_indexed(hwmon_alarm, i, text, sizeof text) && atoi(text) > 0) w->reasons |= 1;
    }
  }
}

void clock_start(clock_watch *w) {
  *w = (clock_watch){.mhz_min = -1, .mhz_max = -1, .celsius_max = -1};
  read_pi_word(&w->pi_before);
  read_counters(&w->counters_before);
  clock_sample(w);
}

void clock_sample(clock_watch *w) {
  char text[32];
  unsigned word = 0;
  uint64_t counters;
  double fastest = -1;
  for (int i = 0; i < MAX_INDEX; i++) {
    if (read_indexed(clock_file, i, text, sizeof text) && atof(text) / 1e3 > fastest) fastest = atof(text) / 1e3;
    if (read_indexed(zone_file, i, text, sizeof text) && atof(text) / 1e3 > w->celsius_max)
      w->celsius_max = atof(text) / 1e3;
  }
  if (fastest > w->mhz_max) w->mhz_max = fastest;
  if (fastest >= 0 && (w->mhz_min < 0 || fastest < w->mhz_min)) w->mhz_min = fastest;
  if (read_pi_word(&word)) {
    w->known = 1;
    w->reasons |= (word & 15) | ((word & ~w->pi_before) >> 16 & 15); /* now, or since the measurement began */
  }
  if (read_counters(&counters)) {
    w->known = 1;
    if (counters > w->counters_before) w->reasons |= BY_COUNTER;
  }
  read_devices(w);
  w->sampled = seconds_now();
}
