/* The inner loop of the Spark source: records of a batch into the buffers of Arrow columns.

   `columns.PythonColumns` is the same in Python, over `core.body`, and explains it; a property
   test holds the two together. What is malformed raises ValueError and adds nothing, whether
   its records are wanted or not. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    char *data;
    size_t size, room;
} Buffer;

static int reserve(Buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size >= more)
        return 0;
    size_t room = buffer->room ? buffer->room : 4096;
    while (room - buffer->size < more)
        room *= 2;
    char *data = PyMem_Realloc(buffer->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->data = data;
    buffer->room = room;
    return 0;
}

static int push(Buffer *buffer, const void *data, size_t size)
{
    if (reserve(buffer, size) < 0)
        return -1;
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return 0;
}

/* A column of byte strings: where each ends, the bytes, and a bit for each that is there. */
typedef struct {
    Buffer ends, bytes, valid;
    int64_t count;
} Strings;

static int strings_push(Strings *column, const char *data, int64_t size)
{
    size_t byte = (size_t)(column->count / 8);
    if (column->valid.size <= byte && push(&column->valid, "\0", 1) < 0)
        return -1;
    if (size >= 0) {
        if (column->bytes.size + (size_t)size > INT32_MAX) {
            PyErr_SetString(PyExc_OverflowError, "more bytes than a column holds");
            return -1;
        }
        column->valid.data[byte] |= (char)(1 << (column->count % 8));
        if (push(&column->bytes, data, (size_t)size) < 0)
            return -1;
    }
    int32_t end = (int32_t)column->bytes.size;
    if (push(&column->ends, &end, sizeof end) < 0)
        return -1;
    column->count++;
    return 0;
}

typedef struct {
    PyObject_HEAD
    Buffer offsets, timestamps, header_ends;
    Strings keys, values, header_keys, header_values;
    int64_t count;
    char with_headers;
} Columns;

/* --- reading a body */

#define HEADERS_MAX 100000 /* limits.HEADERS_PER_RECORD_MAX */
#define OFFSET_DELTA_MAX INT32_MAX
#define MILLISECONDS_MAX (INT64_MAX / 1000) /* Later times do not fit, and become this one. */

typedef struct {
    const unsigned char *at, *end;
} Reader;

static int malformed(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

/* Up to ten bytes, still with the sign in the lowest bit; what 64 bits do not hold is `more`. */
static int read_wide(Reader *reader, uint64_t *result, unsigned *more)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (reader->at >= reader->end)
            return malformed("the body ends within a number");
        unsigned char byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *result = value;
            *more = shift == 63 ? byte >> 1 : 0;
            return 0;
        }
    }
    return malformed("a number of more than ten bytes");
}

static int read_varint(Reader *reader, int64_t *result)
{
    uint64_t value;
    unsigned more;
    if (read_wide(reader, &value, &more) < 0)
        return -1;
    *result = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return more ? malformed("a number of more than 64 bits") : 0;
}

/* A length and as many bytes; -1 stands for none. */
static int read_bytes(Reader *reader, const char **data, int64_t *size)
{
    if (read_varint(reader, size) < 0)
        return -1;
    if (*size < -1 || *size > reader->end - reader->at)
        return malformed("a length that does not fit");
    *data = (const char *)reader->at;
    if (*size > 0)
        reader->at += *size;
    return 0;
}

/* The same for a key or a value, where only the shortest form of -1 is one. */
static int read_field(Reader *reader, const char **data, int64_t *size)
{
    const unsigned char *start = reader->at;
    if (read_bytes(reader, data, size) < 0)
        return -1;
    return *size < 0 && *start != 1 ? malformed("a negative length") : 0;
}

typedef struct {
    int64_t offset_first, timestamp_first, append_time, from, until;
} Place;

/* A header's name is text; what is not UTF-8 is replaced. */
static int push_name(Strings *column, const char *data, int64_t size)
{
    int64_t plain = 0;
    while (plain < size && !(data[plain] & 0x80))
        plain++;
    if (plain == size)
        return strings_push(column, data, size);
    PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "replace");
    if (text == NULL)
        return -1;
    Py_ssize_t length;
    const char *encoded = PyUnicode_AsUTF8AndSize(text, &length);
    int result = encoded == NULL ? -1 : strings_push(column, encoded, length);
    Py_DECREF(text);
    return result;
}

static int add_headers(Columns *self, Reader *reader, int is_wanted)
{
    int64_t count;
    if (read_varint(reader, &count) < 0)
        return -1;
    if (count < 0 || count > HEADERS_MAX)
        return malformed("too many headers, or fewer than none");
    for (int64_t number = 0; number < count; number++) {
        const char *key, *value;
        int64_t key_size, value_size;
        if (read_bytes(reader, &key, &key_size) < 0 || read_bytes(reader, &value, &value_size) < 0)
            return -1;
        if (key_size < 0)
            return malformed("a header without a name");
        if (is_wanted && (push_name(&self->header_keys, key, key_size) < 0 ||
                          strings_push(&self->header_values, value, value_size) < 0))
            return -1;
    }
    if (!is_wanted)
        return 0;
    int32_t end = (int32_t)self->header_keys.count;
    return push(&self->header_ends, &end, sizeof end);
}

static int read_time(Reader *record, const Place *place, int64_t *time)
{
    uint64_t value;
    unsigned more;
    if (read_wide(record, &value, &more) < 0)
        return -1;
    __int128 delta = (__int128)((unsigned __int128)more << 63 | value >> 1);
    __int128 sum = place->timestamp_first + (value & 1 ? -delta - 1 : delta);
    if (place->append_time >= 0)
        sum = place->append_time;
    if (sum < -1 || sum > INT64_MAX)
        return malformed("a timestamp that cannot be");
    *time = (int64_t)sum;
    return 0;
}

static int add_record(Columns *self, Reader *body, const Place *place, int64_t *delta_last)
{
    int64_t size, time, delta, offset, key_size, value_size;
    const char *key, *value;
    if (read_varint(body, &size) < 0)
        return -1;
    if (size < 1 || size > body->end - body->at)
        return malformed("a record that does not fit");
    Reader record = {body->at + 1, body->at + size}; /* After the attributes. */
    body->at += size;
    if (read_time(&record, place, &time) < 0 || read_varint(&record, &delta) < 0)
        return -1;
    if (delta <= *delta_last || delta > OFFSET_DELTA_MAX)
        return malformed("an offset out of order");
    *delta_last = delta;
    if (read_field(&record, &key, &key_size) < 0 || read_field(&record, &value, &value_size) < 0)
        return -1;
    int is_wanted = !__builtin_add_overflow(place->offset_first, delta, &offset) &&
                    place->from <= offset && offset < place->until;
    if (is_wanted) {
        time = (time < MILLISECONDS_MAX ? time : MILLISECONDS_MAX) * 1000;
        if (push(&self->offsets, &offset, sizeof offset) < 0 ||
            push(&self->timestamps, &time, sizeof time) < 0 ||
            strings_push(&self->keys, key, key_size) < 0 ||
            strings_push(&self->values, value, value_size) < 0)
            return -1;
    }
    if (add_headers(self, &record, is_wanted && self->with_headers) < 0)
        return -1;
    if (record.at != record.end)
        return malformed("a record that does not end where its length says");
    self->count += is_wanted;
    return 0;
}

/* --- undoing what a bad batch has added */

typedef struct {
    size_t ends, bytes, valid;
    int64_t count;
} StringsMark;

static StringsMark strings_mark(const Strings *column)
{
    StringsMark mark = {column->ends.size, column->bytes.size, column->valid.size, column->count};
    return mark;
}

static void strings_back(Strings *column, StringsMark mark)
{
    column->ends.size = mark.ends;
    column->bytes.size = mark.bytes;
    column->valid.size = mark.valid;
    column->count = mark.count;
    if (mark.count % 8)
        column->valid.data[mark.count / 8] &= (char)((1 << (mark.count % 8)) - 1);
}

/* --- the type */

static PyObject *columns_add(Columns *self, PyObject *args)
{
    Py_buffer body;
    Py_ssize_t count;
    Place place;
    if (!PyArg_ParseTuple(args, "y*nLLLLL:add", &body, &count, &place.offset_first,
                          &place.timestamp_first, &place.append_time, &place.from, &place.until))
        return NULL;
    Reader reader = {body.buf, (const unsigned char *)body.buf + body.len};
    StringsMark keys = strings_mark(&self->keys), values = strings_mark(&self->values);
    StringsMark names = strings_mark(&self->header_keys), texts = strings_mark(&self->header_values);
    size_t offsets = self->offsets.size, timestamps = self->timestamps.size;
    size_t ends = self->header_ends.size;
    int64_t rows = self->count, delta_last = -1;
    int failed = 0;
    for (Py_ssize_t number = 0; number < count && !failed; number++)
        failed = add_record(self, &reader, &place, &delta_last) < 0;
    if (!failed && reader.at != reader.end)
        failed = malformed("bytes after the last record") < 0;
    PyBuffer_Release(&body);
    if (!failed)
        return PyLong_FromLongLong(self->count - rows);
    strings_back(&self->keys, keys);
    strings_back(&self->values, values);
    strings_back(&self->header_keys, names);
    strings_back(&self->header_values, texts);
    self->offsets.size = offsets;
    self->timestamps.size = timestamps;
    self->header_ends.size = ends;
    self->count = rows;
    return NULL;
}

static PyObject *taken(Buffer *buffer)
{
    PyObject *result = PyBytes_FromStringAndSize(buffer->data, (Py_ssize_t)buffer->size);
    buffer->size = 0;
    return result;
}

/* (validity, ends with a zero before them, bytes) */
static PyObject *strings_taken(Strings *column)
{
    static const int32_t zero = 0;
    Buffer ends = {NULL, 0, 0};
    if (push(&ends, &zero, sizeof zero) < 0 ||
        push(&ends, column->ends.data, column->ends.size) < 0) {
        PyMem_Free(ends.data);
        return NULL;
    }
    PyObject *valid = taken(&column->valid), *places = taken(&ends), *bytes = taken(&column->bytes);
    PyMem_Free(ends.data);
    column->ends.size = 0;
    column->count = 0;
    return Py_BuildValue("(NNN)", valid, places, bytes);
}

static PyObject *columns_take(Columns *self, PyObject *Py_UNUSED(ignored))
{
    static const int32_t zero = 0;
    Buffer ends = {NULL, 0, 0};
    if (push(&ends, &zero, sizeof zero) < 0 ||
        push(&ends, self->header_ends.data, self->header_ends.size) < 0) {
        PyMem_Free(ends.data);
        return NULL;
    }
    long long count = self->count;
    self->count = 0;
    self->header_ends.size = 0;
    PyObject *offsets = taken(&self->offsets), *timestamps = taken(&self->timestamps);
    PyObject *keys = strings_taken(&self->keys), *values = strings_taken(&self->values);
    PyObject *header_ends = taken(&ends);
    PyObject *names = strings_taken(&self->header_keys), *texts = strings_taken(&self->header_values);
    PyMem_Free(ends.data);
    return Py_BuildValue("(LNNNNNNN)", count, offsets, timestamps, keys, values, header_ends, names,
                         texts);
}

static PyObject *columns_size(Columns *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(self->keys.bytes.size + self->values.bytes.size +
                             self->header_values.bytes.size);
}

static PyObject *columns_count(Columns *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->count);
}

static int columns_init(Columns *self, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    int with_headers = 0;
    if (!PyArg_ParseTuple(args, "|p:Columns", &with_headers))
        return -1;
    self->with_headers = (char)with_headers;
    return 0;
}

static void strings_free(Strings *column)
{
    PyMem_Free(column->ends.data);
    PyMem_Free(column->bytes.data);
    PyMem_Free(column->valid.data);
}

static void columns_dealloc(Columns *self)
{
    PyMem_Free(self->offsets.data);
    PyMem_Free(self->timestamps.data);
    PyMem_Free(self->header_ends.data);
    strings_free(&self->keys);
    strings_free(&self->values);
    strings_free(&self->header_keys);
    strings_free(&self->header_values);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef columns_methods[] = {
    {"add", (PyCFunction)columns_add, METH_VARARGS, NULL},
    {"take", (PyCFunction)columns_take, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef columns_properties[] = {
    {"size", (getter)columns_size, NULL, NULL, NULL},
    {"count", (getter)columns_count, NULL, NULL, NULL},
    {NULL},
};

static PyTypeObject columns_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "entrepot.spark._columns.Columns",
    .tp_basicsize = sizeof(Columns),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)columns_init,
    .tp_dealloc = (destructor)columns_dealloc,
    .tp_methods = columns_methods,
    .tp_getset = columns_properties,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "entrepot.spark._columns",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__columns(void)
{
    PyObject *created = PyModule_Create(&module);
    if (created == NULL || PyType_Ready(&columns_type) < 0)
        return NULL;
    if (PyModule_AddObjectRef(created, "Columns", (PyObject *)&columns_type) < 0) {
        Py_DECREF(created);
        return NULL;
    }
    return created;
}
